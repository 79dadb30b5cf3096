"""StartIncarnation and CrashWorker: the two ends of a worker incarnation's life."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from django.db import connection, transaction

from jobs import protocol, store
from jobs.errors import ProtocolViolation
from jobs.ids import IncarnationId, new_id
from jobs.models import Attempt
from jobs.policy import clean_text
from jobs.protocol import Accepted, Refused, WorkerRecord
from jobs.protocol.states import AttemptState, WorkerState
from jobs.transitions.execution import end_attempt
from jobs.values import SYSTEM, Actor, ActorKind, Answer, Declined, Unasked
from jobs.write import append_events, journal_row, write

CRASH: Final = "CrashWorker"


@dataclass(frozen=True, slots=True)
class IncarnationFacts:
    """What a worker process says of itself when it starts."""

    host: str
    pid: int
    role: str
    queues: tuple[str, ...]
    kinds: tuple[str, ...]
    concurrency: int


def start_incarnation(facts: IncarnationFacts, *, incarnation: IncarnationId | None = None) -> IncarnationId:
    """StartIncarnation: a new id, Up. Given an id that was used before, ProtocolViolation."""
    new = incarnation or new_id()
    unused = WorkerRecord(str(new), WorkerState.UNUSED)
    up = protocol.start_incarnation(unused).value  # type: ignore[union-attr]  # an unused one is never refused

    def once(try_number: int) -> None:
        with transaction.atomic(durable=True):
            store.bound_waits()
            if _insert(new, facts):
                _journal("StartIncarnation", unused, up, Actor(ActorKind.INCARNATION, str(new)))
            elif try_number == 1:
                raise ProtocolViolation(f"incarnation {new} was used before")

    store.persistently(once)
    return new


def _insert(new: IncarnationId, facts: IncarnationFacts) -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO jobs_workerincarnation (id, host, pid, role, queues, kinds, concurrency)"
            " VALUES (%s, %s, %s, %s, %s::varchar[], %s::varchar[], %s) ON CONFLICT (id) DO NOTHING",
            [
                new,
                facts.host,
                facts.pid,
                facts.role,
                list(facts.queues),
                list(facts.kinds),
                facts.concurrency,
            ],
        )
        return bool(cursor.rowcount)


def declare_down(
    incarnations: Sequence[IncarnationId], *, why: str, actor: Actor = SYSTEM
) -> list[Answer[WorkerRecord]]:
    """CrashWorker: Down for good, and its attempts over all jobs are known to have stopped, in one
    transaction.

    Authority stays where it is, for the reaper.
    """
    return [store.persistently(partial(_declare_down, id_, why, actor)) for id_ in incarnations]


def _declare_down(id_: IncarnationId, why: str, actor: Actor, _: int) -> Answer[WorkerRecord]:
    with transaction.atomic(durable=True):
        store.bound_waits()
        worker = _lock(id_)
        if worker is None:
            return Declined(Unasked.NO_SUCH_WORKER)
        decision = protocol.declare_down(worker)
        if isinstance(decision, Refused):
            return decision
        # No attempt can be given to it any more: its row is locked, and an insert would have to share it.
        _stop_attempts(id_, actor, why)
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE jobs_workerincarnation SET state = %s, why = %s, declared_down_at = clock_timestamp()"
                " WHERE id = %s AND state = %s",
                [decision.value.state, clean_text(why), id_, worker.state],
            )
            store.require(cursor.rowcount == 1, f"incarnation {id_} changed under its lock")
        _journal(CRASH, worker, decision.value, actor)
        return decision


def _lock(id_: IncarnationId) -> WorkerRecord | None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT state FROM jobs_workerincarnation WHERE id = %s FOR UPDATE", [id_])
        row = cursor.fetchone()
    return None if row is None else WorkerRecord(str(id_), WorkerState(row[0]))


def _stop_attempts(id_: IncarnationId, actor: Actor, why: str) -> None:
    """The same step for each job on which that incarnation has an attempt that may run."""
    active = list(
        Attempt.objects.filter(
            worker_id=id_, state__in=(AttemptState.AUTHORIZED, AttemptState.EXECUTING)
        ).values_list("job_id", flat=True)
    )
    held = store.hold_jobs(active)
    for job in held:
        stopped = protocol.stop_attempts_of(job.view, str(id_))
        for token in (a.token for a in job.view.attempts if stopped.attempt(a.token) != a):
            worker = job.worker_of(token)
            after = job.view.with_attempt(token, state=AttemptState.STOPPED)
            job.take(CRASH, Accepted(after), token=token, worker=worker)
            end_attempt(job, token, None, f"its worker is down: {why}", confirmed=True)
    write(held, actor)


def _journal(action: str, before: WorkerRecord, after: WorkerRecord, actor: Actor) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        now = cursor.fetchone()[0]
    row = journal_row(now, action, None, 0, actor, after.id)
    append_events([(*row, {}, {}, {"worker.state": before.state}, {"worker.state": after.state})])
