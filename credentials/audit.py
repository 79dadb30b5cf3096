"""The audit: replays the journal of intents through the pure functions, and compares where it ends with the
rows.

Whatever it reports is a step that the protocol does not allow, or a row that the journal does not explain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from uuid import UUID

from credentials.models import CredentialEvent, CredentialIntent
from credentials.protocol import (
    ACTIONS,
    INVARIANTS,
    Accepted,
    IntentRecord,
    VaultState,
    final_states_are_immutable,
)

BATCH: int = 2_000


@dataclass(frozen=True, slots=True)
class BrokenStep:
    """The first thing wrong with one intent."""

    intent_id: UUID
    seq: int
    action: str
    problem: str


def audit_intents(owner: str | None = None) -> Iterator[BrokenStep]:
    """Every intent with a broken step, or that ended elsewhere than its row says. A stream of findings."""
    events = CredentialEvent.objects.filter(intent_id__isnull=False, action__in=ACTIONS)
    intents = CredentialIntent.objects.all()
    if owner is not None:
        events, intents = events.filter(owner=owner), intents.filter(owner=owner)
    reached: dict[UUID, IntentRecord] = {}
    broken: set[UUID] = set()
    for event in events.order_by("seq").iterator(BATCH):
        assert event.intent_id is not None  # noqa: S101 (the filter above)
        if event.intent_id in broken:
            continue
        before = reached.get(event.intent_id, IntentRecord())
        problem, after = _replay(event, before)
        reached[event.intent_id] = after
        if problem:
            broken.add(event.intent_id)
            yield BrokenStep(event.intent_id, event.seq, event.action, problem)
    for row in intents.order_by("pk").iterator(BATCH):
        record = reached.get(row.pk, IntentRecord())
        if row.pk not in broken and (row.state, row.version_durable) != (
            record.state,
            record.version_durable,
        ):
            yield BrokenStep(row.pk, 0, "", f"the row is {row.state}, the journal ends at {record.state}")


def _replay(event: CredentialEvent, before: IntentRecord) -> tuple[str, IntentRecord]:
    """What is wrong with the step, or nothing; and where it leads."""
    seen = replace(before, vault=VaultState(event.observed.get("intent.vault", before.vault)))
    decision = ACTIONS[event.action].function(seen)
    if not isinstance(decision, Accepted):
        return f"refused: {decision.reason}", before
    after = decision.value
    for name, value in event.after.items():
        if getattr(after, name.removeprefix("intent.")) != value:
            return f"{name} is said to have become {value}", after
    failed = [name for name, holds in INVARIANTS.items() if not holds(after)]
    if failed or not final_states_are_immutable(before, after):
        return f"breaks {', '.join(failed) or 'FinalStatesAreImmutable'}", after
    return "", after
