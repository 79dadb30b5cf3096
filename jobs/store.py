"""The only writer of protocol columns: lock, view, decide, compare-and-swap, journal; one transaction.

`act` is the whole of it. It locks the rows, then observes, then lets `work` decide on the held jobs, then
writes only what changed, conditioned on the fence columns as locked, and requires that every row was found.
What `work` decides it decides again if the transaction has to be repeated, so it may change nothing but the
held jobs.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast

from django.db import DatabaseError, InterfaceError, OperationalError, connection, transaction

from jobs import members_ledger, rows, sql
from jobs.errors import DurableStoreUnavailable, ProtocolViolation
from jobs.held import HeldJob
from jobs.ids import AttemptId, IncarnationId, JobId
from jobs.protocol import AttemptRecord, Fence, WorkerRecord
from jobs.sql import Inserts
from jobs.values import Actor, Declined, Observe, Unasked
from jobs.write import write

log = logging.getLogger(__name__)
R = TypeVar("R")

TRIES_MAX: Final = 6
WAIT_S_MAX: Final = 1.0
LOCK_WAIT_MS: Final = 5_000
# A process that is stopped in mid-transaction must not keep its rows locked for ever: the server ends it.
IDLE_IN_TRANSACTION_MS: Final = 15_000


@dataclass(slots=True)
class Batch:
    """What one transaction holds. A job that is missing does not exist or, with skip_locked, is locked by
    another.
    """

    jobs: dict[JobId, HeldJob]
    workers: dict[IncarnationId, tuple[WorkerRecord, list[str]]]
    skip_locked: bool = False
    inserts: dict[Inserts, list[Sequence[Any]]] = field(default_factory=dict)
    forgotten: list[AttemptId] = field(default_factory=list)

    def find(self, job_id: JobId) -> HeldJob | Declined:
        job = self.jobs.get(job_id)
        if job is None:
            return Declined(Unasked.LOCKED_BY_ANOTHER if self.skip_locked else Unasked.NO_SUCH_JOB)
        return job if job.observed else Declined(Unasked.NOT_OBSERVED)

    def find_attempt(self, fence: Fence) -> tuple[HeldJob, AttemptRecord] | Declined:
        job = self.find(job_of(fence))
        if isinstance(job, Declined):
            return job
        attempt = job.attempt(fence.token)
        return Declined(Unasked.NO_SUCH_ATTEMPT) if attempt is None else (job, attempt)

    def insert(self, table: Inserts, rows: Iterable[Sequence[Any]]) -> None:
        """Rows beside the protocol's own (members, results) that belong to this transaction."""
        self.inserts.setdefault(table, []).extend(rows)

    def forget_members(self, attempt_id: AttemptId) -> None:
        self.forgotten.append(attempt_id)

    def write_beside(self) -> None:
        if self.forgotten:
            members_ledger.forget(self.forgotten)
        for table, new_rows in self.inserts.items():
            sql.insert_rows(table.model, table.names, new_rows, table.tail)


def act(
    job_ids: Iterable[JobId],
    work: Callable[[Batch], R],
    *,
    fences: Iterable[Fence] = (),
    workers: Iterable[IncarnationId] = (),
    observe: Observe | None = None,
    actor: Actor | None = None,
    skip_locked: bool = False,
    bodies: bool = False,
) -> R:
    """Run `work` on these jobs under their locks, write what it decided, and return what it returned."""
    ids, named, incarnations = list(job_ids), list(fences), sorted(set(workers))

    def once(_: int) -> R:
        with transaction.atomic(durable=True):
            bound_waits()
            # Incarnations before jobs, everywhere: declare_down locks them in this order too.
            shared = rows.share_workers(incarnations) if incarnations else {}
            held = {job.row.id: job for job in hold_jobs(ids, named, skip_locked=skip_locked, bodies=bodies)}
            if observe is not None and held:
                _look(held, observe)
            batch = Batch(held, shared, skip_locked)
            result = work(batch)
            write(list(held.values()), actor)
            batch.write_beside()
            return result

    return persistently(once)


def hold_jobs(
    job_ids: Iterable[JobId],
    fences: Iterable[Fence] = (),
    *,
    skip_locked: bool = False,
    bodies: bool = False,
) -> list[HeldJob]:
    """Lock these jobs and load the attempts that an action may need. Inside a transaction."""
    locked = rows.lock_jobs(job_ids, skip_locked=skip_locked, bodies=bodies)
    authorities = [Fence(row.id, row.authority) for row in locked]
    now, attempts = rows.load_attempts([row.id for row in locked], [*fences, *authorities])
    return [rows.hold(row, attempts.get(row.id, []), now) for row in locked]


def _look(held: dict[JobId, HeldJob], observe: Observe) -> None:
    # After the locks: a reservation seen before them may belong to another worker by now.
    seen = observe(list(held))
    for job_id, job in list(held.items()):
        if job_id in seen:
            job.see(seen[job_id])
            job.locked = job.view
        else:
            job.observed = False


def bound_waits() -> None:
    """Bound how long this transaction waits for a lock, and how long others wait for it. Gone with the
    transaction.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('lock_timeout', %s, true),"
            " set_config('idle_in_transaction_session_timeout', %s, true)",
            [str(LOCK_WAIT_MS), str(IDLE_IN_TRANSACTION_MS)],
        )


def persistently(once: Callable[[int], R]) -> R:
    """Call `once(try_number)` until it is not in the way of another transaction and its connection holds.

    Only for work that may be repeated though its first COMMIT may have been carried out.
    """
    for try_number in range(1, TRIES_MAX + 1):
        try:
            return once(try_number)
        except (OperationalError, InterfaceError, DatabaseError) as error:
            if not _passes(error) or connection.in_atomic_block:
                raise
            _drop_broken_connection(error)
            log.warning(
                "DurableStoreRetry", extra={"try_number": try_number, "error": str(error).partition("\n")[0]}
            )
            if try_number == TRIES_MAX:
                raise DurableStoreUnavailable(str(error).partition("\n")[0]) from error
        time.sleep(random.uniform(0, min(WAIT_S_MAX, 0.02 * 4**try_number)))
    raise AssertionError("unreachable")


def _sqlstate(error: BaseException) -> str | None:
    return getattr(error.__cause__, "pgcode", None)


def _passes(error: DatabaseError | InterfaceError) -> bool:
    """Whether the same transaction may well succeed when tried again."""
    state = _sqlstate(error)
    if state is None:
        # The client library gives no code when the connection was lost or never made.
        return isinstance(error, OperationalError | InterfaceError)
    # 08 connection, 40 rollback (deadlock, serialisation), 53 resources, 55P03 lock wait, 57P0x server going
    # down.
    return state[:2] in ("08", "40", "53") or state in ("55P03", "57P01", "57P02", "57P03", "25P03")


def _drop_broken_connection(error: BaseException) -> None:
    state = _sqlstate(error)
    if state is None or state[:2] not in ("40", "55"):
        connection.close()


def require(condition: bool, message: str) -> None:
    """A broken invariant is a defect: it crashes."""
    if not condition:
        raise ProtocolViolation(message)


def distinct(fences: Sequence[Fence]) -> list[JobId]:
    return sorted({job_of(fence) for fence in fences})


def job_of(fence: Fence) -> JobId:
    """The protocol knows no ids of ours: to it a job's id is any value."""
    return cast(JobId, fence.job_id)
