"""Read-only selectors for people: lists and one job with everything about it. Bounded, newest first.

Sweeps have selectors of their own (queries.py). Nothing here locks or counts a whole table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.db import connection
from django.db.models import Q, QuerySet

from jobs.ids import IncarnationId, JobId
from jobs.models import Attempt, CommittedResult, Job, ProtocolEvent, WorkerIncarnation
from jobs.protocol.states import AttemptState, WorkerState

ATTEMPTS_MAX: Final = 200
JOURNAL_ROWS: Final = 50
_ACTIVE: Final = (AttemptState.AUTHORIZED, AttemptState.EXECUTING)
_HEX: Final = set("0123456789abcdef")


@dataclass(frozen=True, slots=True)
class JobFilter:
    """What a list of jobs is narrowed to; empty means all."""

    phase: str = ""
    kind: str = ""
    queue: str = ""


@dataclass(frozen=True, slots=True)
class JobDetail:
    """One job as the durable store knows it. `attempts` are the last ATTEMPTS_MAX, by token."""

    job: Job
    attempts: list[Attempt]
    result: CommittedResult | None
    now: datetime


def list_jobs(wanted: JobFilter, *, rows_max: int, before: JobId | None = None) -> list[Job]:
    """Jobs, newest first (ids are made in order of time), from before that one."""
    named = {"phase": wanted.phase, "kind": wanted.kind, "queue": wanted.queue}
    found = Job.objects.filter(**{name: value for name, value in named.items() if value})
    if before is not None:
        found = found.filter(id__lt=before)
    return list(found.defer("spec", "checkpoint_proof").order_by("-id")[:rows_max])


def job_detail(job_id: JobId) -> JobDetail | None:
    """The job, its attempts with their workers, and its result; None if there is no such job."""
    job = Job.objects.select_related("owner").filter(id=job_id).first()
    if job is None:
        return None
    newest = Attempt.objects.filter(job=job_id).select_related("worker").order_by("-token")[:ATTEMPTS_MAX]
    result = CommittedResult.objects.filter(job=job_id).first()
    return JobDetail(job, sorted(newest, key=lambda attempt: attempt.token), result, now())


def journal(job_id: JobId, *, rows_max: int = JOURNAL_ROWS, before: int | None = None) -> list[ProtocolEvent]:
    """The job's journal, newest first, from before that row."""
    events = ProtocolEvent.objects.filter(job_id=job_id)
    if before is not None:
        events = events.filter(seq__lt=before)
    return list(events.order_by("-seq")[:rows_max])


def journal_after(job_id: JobId, seq: int, *, rows_max: int = 1000) -> list[ProtocolEvent]:
    """The job's journal from after that row, in order."""
    return list(ProtocolEvent.objects.filter(job_id=job_id, seq__gt=seq).order_by("seq")[:rows_max])


def attempts_of_worker(worker: IncarnationId, *, rows_max: int = ATTEMPTS_MAX) -> list[Attempt]:
    """Attempts of that incarnation that are not known to have stopped."""
    active = Attempt.objects.filter(worker=worker, state__in=_ACTIVE)
    return list(active.select_related("job").defer("job__spec", "job__checkpoint_proof")[:rows_max])


def active_counts(workers: Sequence[IncarnationId]) -> dict[IncarnationId, int]:
    """How many attempts of each incarnation are not known to have stopped."""
    counts: dict[IncarnationId, int] = dict.fromkeys(workers, 0)
    for worker in Attempt.objects.filter(worker__in=workers, state__in=_ACTIVE).values_list(
        "worker_id", flat=True
    ):
        counts[worker] += 1
    return counts


def matching(jobs: QuerySet[Job], text: str) -> QuerySet[Job]:
    """Jobs whose id is or begins with `text`, whose key is `text`, or whose label begins with it."""
    text = text.strip().replace("\x00", "")
    wanted = Q(idempotency_key=text) | Q(label__startswith=text)
    between = _id_range(text)
    if between is not None:
        wanted |= Q(id__range=between)
    return jobs.filter(wanted)


def _id_range(text: str) -> tuple[UUID, UUID] | None:
    digits = text.lower().replace("-", "")
    if not digits or len(digits) > 32 or not set(digits) <= _HEX:
        return None
    return UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))


def queues_served() -> list[str]:
    """Celery queues that an incarnation which is not Down takes from."""
    served: set[str] = set()
    for queues in WorkerIncarnation.objects.filter(state=WorkerState.UP).values_list("queues", flat=True):
        served.update(queues)
    return sorted(served)


def workers_on_queue(celery_queue: str) -> int:
    """How many incarnations that are not Down take from that queue."""
    return WorkerIncarnation.objects.filter(state=WorkerState.UP, queues__contains=[celery_queue]).count()


def now() -> datetime:
    """PostgreSQL's clock: the one that the rows' times were read from."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        row: tuple[Any, ...] = cursor.fetchone()
    moment: datetime = row[0]
    return moment
