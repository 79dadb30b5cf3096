"""Read-only selectors for sweeps and pages. Each is bounded and continues after the last row it gave (keyset).

A sweep's query finds candidates; whether to act is decided again under the row lock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from jobs.ids import AttemptId, IncarnationId, JobId
from jobs.models import Job
from jobs.protocol import Fence, WorkerRecord
from jobs.protocol.states import AttemptState, Phase
from jobs.transitions.dispatch import Offer
from jobs.values import Member


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


def awaiting_dispatch(*, rows_max: int, after: tuple[int, JobId] | None = None) -> list[Offer]:
    """Queued jobs that want dispatch, highest priority first. `after` = (priority, job_id) of the last one."""
    raise NotImplementedError


def running(*, rows_max: int, after: JobId | None = None) -> list[RunningFact]:
    """Running jobs with their authority."""
    raise NotImplementedError


def due_retries(*, rows_max: int) -> list[JobId]:
    """Jobs whose backoff is over by PostgreSQL's clock, longest over first."""
    raise NotImplementedError


def cancelling(*, rows_max: int, after: JobId | None = None) -> list[RunningFact]:
    """Jobs whose cancel is not final, with their authority."""
    raise NotImplementedError


def outcomes_pending(*, rows_max: int) -> list[Fence]:
    """Attempts whose outcome was sent and not processed."""
    raise NotImplementedError


def stages_to_clean(*, rows_max: int, after: AttemptId | None = None) -> list[Fence]:
    """Stages that were not committed, are not the authority's, and whose attempt can no longer write."""
    raise NotImplementedError


def job_facts(job_ids: Sequence[JobId]) -> dict[JobId, JobFact]:
    """The durable variables of these jobs. A job that is missing does not exist."""
    raise NotImplementedError


def active_attempts(worker: IncarnationId) -> list[RunningFact]:
    """Attempts of that incarnation that are authorised or executing, also those that lost authority."""
    raise NotImplementedError


def workers_up() -> list[WorkerRecord]:
    """Incarnations that are not Down."""
    raise NotImplementedError


def worker_records(ids: Sequence[IncarnationId]) -> dict[IncarnationId, WorkerRecord]:
    """These incarnations. An id that is missing was never used."""
    raise NotImplementedError


def staged_members(attempt_id: AttemptId, *, rows_max: int = 1000) -> Iterator[Member]:
    """The ledger of one attempt, bytewise by path, read `rows_max` at a time without a server-side cursor."""
    raise NotImplementedError


def find_job(text: str) -> Job:
    """The job of that id (or of the only id that starts so), or NoSuchJob."""
    raise NotImplementedError
