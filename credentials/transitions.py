"""One function per durable action: lock, decide, write, journal, commit. Batch first.

Each takes a sequence of requests (one is the usual case) and gives a list of answers in their order:
`.accepted` with `.value`, or `.refused` with `.reason`, a conjunct of the module or why the row does not
fit the request. A refusal changed nothing. Asking again for what is done already is accepted: a caller
whose COMMIT got no answer asks again.

What was found in Vault is told by the caller (`found`), not looked up here under the row's lock. That is
safe since each such fact is one that stays: a fenced path stays empty; a secret that landed stays until an
intent that is Abandoning, or a version that is Destroying, has it destroyed; and this row's state, which
decides who may do that, is compared here, under its lock, and with the very path (docs/credentials.md has
the table).

CompleteCredentialWrite is Vault's own step (`SecretStore.write`): nothing durable changes in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models.functions import Now

from credentials import protocol, store, versions
from credentials.answer import Answer, Effect, Misfit, Unfit
from credentials.models import CredentialIntent, SecretPath
from credentials.protocol import Accepted, Decision, IntentRecord, IntentState, Refused, VaultState
from credentials.store import Actor


@dataclass(frozen=True, slots=True)
class Prepare:
    """`expected_number`: for a version of a connection, the number that it must find current to be
    committed.
    """

    intent_id: UUID
    owner: str
    name: str
    field_names: tuple[str, ...]
    expected_number: int | None = None


@dataclass(frozen=True, slots=True)
class Begin:
    """A fresh path, and the accessor of the only token that can write to it."""

    intent_id: UUID
    path: str
    writer_accessor: str


@dataclass(frozen=True, slots=True)
class Step:
    """One try's step. `path` says which try it is; `found` what Vault was proved to hold there."""

    intent_id: UUID
    path: str
    found: VaultState
    why: str = ""


def look_up(intent_id: UUID) -> CredentialIntent | None:
    """The intent as it is now, without a lock: what is then asked for is compared under one."""
    return store.persistently(lambda: CredentialIntent.objects.filter(pk=intent_id).first())


def prepare_credential_intent(requests: Sequence[Prepare], actor: Actor) -> list[Answer]:
    def work() -> list[Answer]:
        known = store.lock_intents(request.intent_id for request in requests)
        answers: list[Answer] = []
        rows, events = [], []
        for request in requests:
            if row := known.get(request.intent_id):
                answers.append(
                    _already(row, row.path, IntentState.PREPARED, Refused(protocol.Refusal.NOT_UNUSED))
                )
                continue
            before = IntentRecord()
            decision = protocol.prepare_credential_intent(before)
            answers.append(decision)
            rows.append(_row_of(request))
            events.append(_event("PrepareCredentialIntent", rows[-1], before, decision, actor))
        CredentialIntent.objects.bulk_create(rows)
        store.journal(events)
        return answers

    return store.transact_durably(work)


def begin_credential_write(requests: Sequence[Begin], actor: Actor) -> list[Answer]:
    """Opens the try's path: the ledger knows it, and who may write there, before anything can be written."""
    paths = {request.intent_id: request for request in requests}

    def effect(row: CredentialIntent) -> dict[str, Any]:
        request, number = paths[row.pk], row.tries + 1
        SecretPath.objects.create(
            path=request.path, intent=row, number=number, writer_accessor=request.writer_accessor
        )
        return {"path": request.path, "tries": number}

    steps = [Step(request.intent_id, request.path, VaultState.ABSENT) for request in requests]
    return _act("BeginCredentialWrite", steps, actor, IntentState.WRITING, effect, new_try=True)


def record_credential_write(steps: Sequence[Step], actor: Actor) -> list[Answer]:
    return _act("RecordCredentialWrite", steps, actor, IntentState.WRITTEN)


def fence_failed_credential_write(steps: Sequence[Step], actor: Actor) -> list[Answer]:
    return _act("FenceFailedCredentialWrite", steps, actor, IntentState.PREPARED, _close_path)


def claim_credential_cleanup(
    steps: Sequence[Step], actor: Actor, *, skip_locked: bool = False
) -> list[Answer]:
    """With `skip_locked`, an intent that somebody is just committing is left alone."""
    return _act("ClaimCredentialCleanup", steps, actor, IntentState.ABANDONING, skip_locked=skip_locked)


def destroy_claimed_credential_secret(steps: Sequence[Step], actor: Actor) -> list[Answer]:
    """After Vault has proved every version destroyed. `found` is what had been there: the module's step is
    one of
    both stores, and until this half of it the ledger goes on answering for the secret."""
    return _act("DestroyClaimedCredentialSecret", steps, actor, IntentState.ABANDONED, _close_path)


def abandon_fenced_credential_intent(
    steps: Sequence[Step], actor: Actor, *, skip_locked: bool = False
) -> list[Answer]:
    return _act("AbandonFencedCredentialIntent", steps, actor, IntentState.ABANDONED, skip_locked=skip_locked)


def commit_credential_version(steps: Sequence[Step], actor: Actor) -> list[Answer]:
    """The intent and its version, in one transaction: this one's own, or one that the caller has begun.

    A version of a connection becomes current in it, if the number that its intent expects is still current.
    """

    def work() -> list[Answer]:
        rows = store.lock_intents(step.intent_id for step in steps)
        connections = versions.lock_connections(rows.values())

        def adopt(row: CredentialIntent) -> dict[str, Any] | Unfit:
            return versions.adopt(row, connections)

        return [
            _act_on(
                "CommitCredentialVersion", rows[step.intent_id], step, actor, IntentState.COMMITTED, adopt
            )
            if step.intent_id in rows
            else Unfit(Misfit.NO_SUCH_INTENT)
            for step in steps
        ]

    return store.transact(work)


def _act_on(
    action: str,
    row: CredentialIntent,
    step: Step,
    actor: Actor,
    target: IntentState,
    effect: Effect,
    *,
    new_try: bool = False,
) -> Answer:
    """Decide one step on a locked intent, and write it."""
    if not new_try and step.path != row.path:
        return Unfit(Misfit.ANOTHER_TRY)
    before = store.view(row, step.found)
    decision: Decision = protocol.ACTIONS[action].function(before)
    if isinstance(decision, Refused):
        return _already(row, step.path, target, decision)
    after = decision.value
    store.check(before, after)
    columns = effect(row)
    if isinstance(columns, Unfit):
        return columns
    store.write_intent(row, after, why=step.why, **columns)
    store.journal([_event(action, row, before, decision, actor, path=step.path, why=step.why)])
    return decision


def _act(
    action: str,
    steps: Sequence[Step],
    actor: Actor,
    target: IntentState,
    effect: Effect = lambda row: {},
    *,
    new_try: bool = False,
    skip_locked: bool = False,
) -> list[Answer]:
    absent = Unfit(Misfit.LOCKED_BY_ANOTHER if skip_locked else Misfit.NO_SUCH_INTENT)

    def work() -> list[Answer]:
        rows = store.lock_intents((step.intent_id for step in steps), skip_locked=skip_locked)
        return [
            _act_on(action, rows[step.intent_id], step, actor, target, effect, new_try=new_try)
            if step.intent_id in rows
            else absent
            for step in steps
        ]

    return store.transact_durably(work)


def _already(row: CredentialIntent, path: str, target: IntentState, refusal: Refused) -> Answer:
    """A step that was taken already, on this very try, is accepted once more: its answer may have been
    lost.
    """
    if row.state == target and row.path == path:
        return Accepted(store.view(row, VaultState.ABSENT))
    return refusal


def _close_path(row: CredentialIntent) -> dict[str, Any]:
    """Nothing is there and nothing can come: as Vault has shown before this step was asked for."""
    SecretPath.objects.filter(path=row.path, closed_at=None).update(closed_at=Now())
    return {}


def _row_of(request: Prepare) -> CredentialIntent:
    return CredentialIntent(
        id=request.intent_id,
        owner=request.owner,
        name=request.name,
        field_names=list(request.field_names),
        expected_number=request.expected_number,
    )


def _event(
    action: str,
    row: CredentialIntent,
    before: IntentRecord,
    decision: Decision,
    actor: Actor,
    **params: str,
) -> Any:
    after = decision.value if isinstance(decision, Accepted) else before
    changed_from, changed_to = store.difference(before, after)
    return store.event(
        action,
        row.owner,
        row.name,
        actor,
        intent_id=row.pk,
        params={name: value for name, value in params.items() if value},
        observed={"intent.vault": before.vault},
        before=changed_from,
        after=changed_to,
    )
