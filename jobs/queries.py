"""Read-only selectors for sweeps and pages. Each is bounded and continues after the last row it gave
(keyset).

A sweep's query finds candidates; whether to act is decided again under the row lock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.db import connection
from django.db.models import Q
from django.db.models.functions import Now

from jobs import members_ledger
from jobs.errors import NoSuchJob
from jobs.ids import AttemptId, IncarnationId, JobId
from jobs.models import Attempt, Job, WorkerIncarnation
from jobs.protocol import Fence, WorkerRecord
from jobs.protocol.states import AttemptState, OutcomeRequest, Phase, StageState, WorkerState
from jobs.transitions.dispatch import Offer
from jobs.values import Member

FIRST_ID: Final = UUID(int=0)


@dataclass(frozen=True, slots=True)
class RunningFact:
    """A running job and its authority, as the reaper and the watchdog want them."""

    fence: Fence
    attempt_id: AttemptId
    worker: IncarnationId
    state: AttemptState
    queue: str
    concurrency_key: str
    authorized_at: datetime


@dataclass(frozen=True, slots=True)
class AttemptFact:
    """An attempt that a sweep may have work with. The next page begins after the last one's `attempt_id`."""

    attempt_id: AttemptId
    fence: Fence


@dataclass(frozen=True, slots=True)
class JobFact:
    """What coordination GC compares Redis with: one job's durable variables and its authority's worker."""

    job_id: JobId
    phase: Phase
    cancel_requested: bool
    current_token: int
    authority: int
    dispatch_needed: bool
    queue: str
    concurrency_key: str
    authority_worker: IncarnationId | None
    authority_state: AttemptState | None


_OFFER_COLUMNS: Final = (
    "id",
    "current_token",
    "kind",
    "queue",
    "priority",
    "concurrency_key",
    "spec_digest",
)
_RUNNING_COLUMNS: Final = """
    job.id, attempt.token, attempt.id, attempt.worker_id, attempt.state, job.queue, job.concurrency_key,
    attempt.authorized_at
"""


def awaiting_dispatch(*, rows_max: int, after: tuple[int, JobId] | None = None) -> list[Offer]:
    """Queued jobs that want dispatch, highest priority first. `after` = (priority, job_id) of the last
    one."""
    waiting = Job.objects.filter(phase=Phase.QUEUED, dispatch_needed=True).order_by("-priority", "id")
    if after is not None:
        priority, job_id = after
        # The first condition bounds the scan of the index; the second says where in it to go on.
        waiting = waiting.filter(priority__lte=priority).filter(
            Q(priority__lt=priority) | Q(priority=priority, id__gt=job_id)
        )
    return [
        Offer(id_, token + 1, kind, queue, priority, key, digest)
        for id_, token, kind, queue, priority, key, digest in waiting.values_list(*_OFFER_COLUMNS)[:rows_max]
    ]


def running(*, rows_max: int, after: JobId | None = None) -> list[RunningFact]:
    """Running jobs with their authority."""
    return _in_authority(Phase.RUNNING, rows_max, after)


def cancelling(*, rows_max: int, after: JobId | None = None) -> list[RunningFact]:
    """Jobs whose cancel is not final, with their authority."""
    return _in_authority(Phase.CANCELLING, rows_max, after)


def _in_authority(phase: Phase, rows_max: int, after: JobId | None) -> list[RunningFact]:
    # The phase is written into the statement, so that every plan of it may use that phase's partial index.
    return _running_facts(
        f"SELECT {_RUNNING_COLUMNS} FROM jobs_job AS job"  # noqa: S608
        " JOIN jobs_attempt AS attempt ON attempt.job_id = job.id AND attempt.token = job.authority"
        f" WHERE job.phase = '{phase}' AND job.id > %s ORDER BY job.id LIMIT %s",
        [after or FIRST_ID, rows_max],
    )


def active_attempts(worker: IncarnationId) -> list[RunningFact]:
    """Attempts of that incarnation that are authorised or executing, also those that lost authority."""
    return _running_facts(
        f"SELECT {_RUNNING_COLUMNS} FROM jobs_attempt AS attempt"  # noqa: S608
        " JOIN jobs_job AS job ON job.id = attempt.job_id"
        f" WHERE attempt.worker_id = %s AND attempt.state IN ('{AttemptState.AUTHORIZED}',"
        f" '{AttemptState.EXECUTING}') ORDER BY attempt.id",
        [worker],
    )


def _running_facts(statement: str, parameters: list[Any]) -> list[RunningFact]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return [
            RunningFact(Fence(job_id, token), attempt_id, worker, AttemptState(state), queue, key, at)
            for job_id, token, attempt_id, worker, state, queue, key, at in cursor.fetchall()
        ]


def due_retries(*, rows_max: int, tried: Collection[JobId] = ()) -> list[JobId]:
    """Jobs whose backoff is over by PostgreSQL's clock, longest over first; none `tried` in this sweep."""
    due = Job.objects.filter(phase=Phase.RETRY_WAIT, retry_at__lte=Now()).exclude(id__in=tried)
    return list(due.order_by("retry_at", "id").values_list("id", flat=True)[:rows_max])


def outcomes_pending(*, rows_max: int, after: AttemptId | None = None) -> list[AttemptFact]:
    """Attempts whose outcome was sent and not processed."""
    pending = Attempt.objects.filter(id__gt=after or FIRST_ID).exclude(pending_outcome=OutcomeRequest.NONE)
    rows = pending.order_by("id").values_list("id", "job_id", "token")[:rows_max]
    return [AttemptFact(id_, Fence(job_id, token)) for id_, job_id, token in rows]


def stages_to_clean(*, rows_max: int, after: AttemptId | None = None) -> list[AttemptFact]:
    """Stages that were not committed, are not the authority's, and whose attempt can no longer write.

    Not those that a next attempt may start from: the valid checkpoint of a job that is not over.
    `after` = the attempt id of the last one.
    """
    with connection.cursor() as cursor:
        cursor.execute(_STAGES_TO_CLEAN, [after or FIRST_ID, rows_max])
        return [
            AttemptFact(attempt_id, Fence(job_id, token)) for attempt_id, job_id, token in cursor.fetchall()
        ]


_STAGES_TO_CLEAN: Final = f"""
    SELECT attempt.id, attempt.job_id, attempt.token
    FROM jobs_attempt AS attempt
    JOIN jobs_job AS job ON job.id = attempt.job_id
    JOIN jobs_workerincarnation AS worker ON worker.id = attempt.worker_id
    WHERE attempt.stage_state IN ('{StageState.PARTIAL}', '{StageState.COMPLETE}')
      AND attempt.state <> '{AttemptState.COMMITTED}'
      AND attempt.id > %s
      AND attempt.token NOT IN (job.authority, job.committed)
      AND (attempt.state = '{AttemptState.STOPPED}' OR worker.state = '{WorkerState.DOWN}')
      AND (NOT job.checkpoint_valid OR job.checkpoint_token <> attempt.token
           OR job.phase IN ('{Phase.SUCCEEDED}', '{Phase.FAILED}', '{Phase.CANCELLED}'))
    ORDER BY attempt.id LIMIT %s
"""  # noqa: S608


def job_facts(job_ids: Sequence[JobId]) -> dict[JobId, JobFact]:
    """The durable variables of these jobs. A job that is missing does not exist."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT job.id, job.phase, job.cancel_requested, job.current_token, job.authority,"
            " job.dispatch_needed, job.queue, job.concurrency_key, attempt.worker_id, attempt.state"
            " FROM jobs_job AS job LEFT JOIN jobs_attempt AS attempt"
            " ON attempt.job_id = job.id AND attempt.token = job.authority WHERE job.id = ANY(%s)",
            [list(job_ids)],
        )
        return {
            id_: JobFact(*(id_, Phase(phase), *facts, worker, state and AttemptState(state)))
            for id_, phase, *facts, worker, state in cursor.fetchall()
        }


def workers_up() -> list[WorkerRecord]:
    """Incarnations that are not Down."""
    up = WorkerIncarnation.objects.filter(state=WorkerState.UP).order_by("started_at", "id")
    return [WorkerRecord(str(id_)) for id_ in up.values_list("id", flat=True)]


def worker_records(ids: Sequence[IncarnationId]) -> dict[IncarnationId, WorkerRecord]:
    """These incarnations. An id that is missing was never used."""
    found = WorkerIncarnation.objects.filter(id__in=ids).values_list("id", "state")
    return {id_: WorkerRecord(str(id_), WorkerState(state)) for id_, state in found}


def staged_members(attempt_id: AttemptId, *, rows_max: int = 1000) -> Iterator[Member]:
    """The ledger of one attempt, bytewise by path, read `rows_max` at a time without a server-side cursor."""
    return members_ledger.read(attempt_id, rows_max=rows_max)


def find_job(text: str) -> Job:
    """The job of that id (or of the only id that starts so), or NoSuchJob."""
    digits = text.strip().replace("-", "").lower()
    if not digits or len(digits) > 32 or not set(digits) <= set("0123456789abcdef"):
        raise NoSuchJob(text)
    low, high = UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))
    found: list[Job] = list(Job.objects.filter(id__gte=low, id__lte=high).order_by("id")[:2])
    if len(found) != 1:
        raise NoSuchJob(text)
    return found[0]
