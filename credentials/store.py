"""The only writer of the ledger: lock, view, decide, compare-and-swap, journal; one transaction.

`transact` runs the work, and runs it again when the transaction was in another's way or its connection was
lost; so the work may be done although it was already carried out once, and every transition answers that
case.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from uuid import UUID

from django.db import DatabaseError, InterfaceError, OperationalError, connection, transaction
from django.db.models.functions import Now

from credentials.errors import LedgerUnavailable, ProtocolViolation
from credentials.models import CredentialEvent, CredentialIntent
from credentials.protocol import (
    INVARIANTS,
    IntentRecord,
    IntentState,
    VaultState,
    final_states_are_immutable,
)

log = logging.getLogger(__name__)
R = TypeVar("R")

TRIES_MAX: Final = 6
WAIT_S_MAX: Final = 1.0
LOCK_WAIT_MS: Final = 5_000
IDLE_IN_TRANSACTION_MS: Final = 15_000


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts: a kind ("user", "incarnation", "duty", "command", "system") and which one."""

    kind: str
    id: str = ""


def transact(work: Callable[[], R]) -> R:
    """Run `work` in a transaction of its own, or in the caller's, which then answers for repeating it."""
    if connection.in_atomic_block:
        with transaction.atomic():
            return work()

    def once() -> R:
        with transaction.atomic(durable=True):
            bound_waits()
            return work()

    return persistently(once)


def transact_durably(work: Callable[[], R]) -> R:
    """As `transact`, and refuses to run inside another transaction: what Vault is told next must not be
    rolled back.
    """
    if connection.in_atomic_block:
        raise ProtocolViolation("A step that Vault relies on was asked for inside another transaction.")
    return transact(work)


def bound_waits() -> None:
    """Bound how long this transaction waits for a lock, and how long others wait for it."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('lock_timeout', %s, true),"
            " set_config('idle_in_transaction_session_timeout', %s, true)",
            [str(LOCK_WAIT_MS), str(IDLE_IN_TRANSACTION_MS)],
        )


def persistently(once: Callable[[], R]) -> R:
    """Call `once` until it is in no other transaction's way and its connection holds."""
    for try_number in range(1, TRIES_MAX + 1):
        try:
            return once()
        except (DatabaseError, InterfaceError) as error:
            if not _passes(error) or connection.in_atomic_block:
                raise
            if _sqlstate(error)[:2] not in ("40", "55"):
                connection.close()
            log.warning("LedgerRetry", extra={"try_number": try_number, "sqlstate": _sqlstate(error)})
            if try_number == TRIES_MAX:
                raise LedgerUnavailable(f"PostgreSQL: {type(error).__name__}") from error
        time.sleep(random.uniform(0, min(WAIT_S_MAX, 0.02 * 4**try_number)))
    raise AssertionError("unreachable")


def _sqlstate(error: BaseException) -> str:
    return getattr(error.__cause__, "pgcode", None) or ""


def _passes(error: DatabaseError | InterfaceError) -> bool:
    state = _sqlstate(error)
    if not state:  # the client library has no code for a connection that was lost or never made
        return isinstance(error, OperationalError | InterfaceError)
    # 08 connection, 40 rollback, 53 resources, 55P03 lock wait, 57P0x server going down, 25P03 idle too long.
    return state[:2] in ("08", "40", "53") or state in ("55P03", "57P01", "57P02", "57P03", "25P03")


# --- inside a transaction ---------------------------------------------------------------------------------


def lock_intents(ids: Iterable[UUID], *, skip_locked: bool = False) -> dict[UUID, CredentialIntent]:
    """The rows under their locks, taken in the order of their ids."""
    rows = CredentialIntent.objects.filter(pk__in=set(ids)).order_by("pk")
    return {row.pk: row for row in rows.select_for_update(skip_locked=skip_locked)}


def view(row: CredentialIntent, found: VaultState) -> IntentRecord:
    """The row and what was found in Vault, as the protocol's value."""
    return IntentRecord(IntentState(row.state), found, row.version_durable)


def check(before: IntentRecord, after: IntentRecord) -> None:
    """The invariants, asserted on every write."""
    broken = [name for name, holds in INVARIANTS.items() if not holds(after)]
    if broken or not final_states_are_immutable(before, after):
        raise ProtocolViolation(f"{', '.join(broken) or 'FinalStatesAreImmutable'}: {before} -> {after}")


def write_intent(row: CredentialIntent, after: IntentRecord, **columns: Any) -> None:
    """Write the difference, if the row is still what was locked."""
    locked = CredentialIntent.objects.filter(pk=row.pk, state=row.state, path=row.path)
    changes = {"state": after.state, "version_durable": after.version_durable, **columns}
    if locked.update(touched_at=Now(), **changes) != 1:
        raise ProtocolViolation(f"Intent {row.pk} changed under its lock.")
    for name, value in changes.items():
        setattr(row, name, value)


def journal(events: Sequence[CredentialEvent]) -> None:
    CredentialEvent.objects.bulk_create(events)


def event(
    action: str,
    owner: str,
    name: str,
    actor: Actor,
    *,
    intent_id: UUID | None = None,
    params: Mapping[str, Any] | None = None,
    observed: Mapping[str, Any] | None = None,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> CredentialEvent:
    return CredentialEvent(
        action=action,
        intent_id=intent_id,
        owner=owner,
        name=name,
        actor_kind=actor.kind,
        actor_id=actor.id,
        params=dict(params or {}),
        observed=dict(observed or {}),
        before=dict(before or {}),
        after=dict(after or {}),
    )


def difference(before: IntentRecord, after: IntentRecord) -> tuple[dict[str, Any], dict[str, Any]]:
    """The changed variables, before and after, as the journal has them."""
    names = [name for name in IntentRecord.__slots__ if getattr(before, name) != getattr(after, name)]
    return (
        {f"intent.{name}": getattr(before, name) for name in names},
        {f"intent.{name}": getattr(after, name) for name in names},
    )
