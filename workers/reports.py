"""A job as people and programs want to see it: the durable facts, with Redis' hints beside them.

PostgreSQL says what is so. What Redis says is shown only where it fits what PostgreSQL says, with its age:
progress that another attempt than the authority reported is not shown. If Redis cannot be reached, the
durable facts are. The same report serves `show --json`, the admin and its refreshing view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from jobs import pages
from jobs.errors import NoSuchJob
from jobs.ids import JobId
from jobs.models import Attempt, CommittedResult, Job, WorkerIncarnation
from jobs.pages import JobFilter
from jobs.protocol.states import AttemptState, Phase, WorkerState

Report = dict[str, Any]
STOP_NOT_CONFIRMED: Final = "authority lost, stop not confirmed"
_ACTIVE: Final = (AttemptState.AUTHORIZED, AttemptState.EXECUTING)


@dataclass(frozen=True, slots=True)
class Hints:
    """What Redis says of one job; `reachable` is False when it said nothing because it did not answer."""

    reachable: bool = False
    live: Mapping[str, Any] | None = None
    live_leases: frozenset[int] = frozenset()
    queued: bool = False
    reserved_by: str = ""


NO_HINTS: Final = Hints()


def describe(job_id: JobId) -> Report:
    """Everything about one job, or NoSuchJob."""
    detail = pages.job_detail(job_id)
    if detail is None:
        raise NoSuchJob(job_id)
    hints = hints_of([job_id])[job_id]
    job = detail.job
    attempts = [describe_attempt(attempt, job, hints) for attempt in detail.attempts]
    return {
        **summary(job, hints, detail.now),
        "label": job.label,
        "key": job.idempotency_key,
        "concurrency_key": job.concurrency_key,
        "owner": job.owner.get_username() if job.owner else None,
        "spec": job.spec,
        "spec_digest": job.spec_digest,
        "cancel_requested": job.cancel_requested,
        "cancel_reason": job.cancel_reason,
        "max_attempts": job.max_attempts,
        "failures": job.failures,
        "max_failures": job.max_failures,
        "losses_in_row": job.losses_in_row,
        "max_losses": job.max_losses,
        "retry_at": _iso(job.retry_at),
        "updated_at": _iso(job.updated_at),
        "attempts": attempts,
        "zombies": [attempt["token"] for attempt in attempts if attempt["zombie"]],
        "checkpoint": {
            "progress": job.checkpoint,
            "token": job.checkpoint_token,
            "valid": job.checkpoint_valid,
            "at": _iso(job.checkpoint_at),
        },
        "result": describe_result(detail.result) if detail.result else None,
        "coordination_reachable": hints.reachable,
    }


def list_jobs(wanted: JobFilter, *, rows_max: int, before: JobId | None = None) -> tuple[list[Report], bool]:
    """Summaries, newest first, and whether there are more."""
    jobs = pages.list_jobs(wanted, rows_max=rows_max + 1, before=before)
    return summaries(jobs[:rows_max]), len(jobs) > rows_max


def summaries(jobs: Sequence[Job]) -> list[Report]:
    """One line each for these jobs, with a single look into Redis."""
    hints = hints_of([job.id for job in jobs])
    now = pages.now()
    return [summary(job, hints[job.id], now) for job in jobs]


def summary(job: Job, hints: Hints, now: datetime) -> Report:
    """What a list shows of a job."""
    return {
        "job": str(job.id),
        "kind": job.kind,
        "queue": job.queue,
        "priority": job.priority,
        "phase": job.phase,
        "token": job.current_token,
        "authority": job.authority,
        "committed": job.committed,
        "created_at": _iso(job.created_at),
        "finished_at": _iso(job.finished_at),
        "age_s": round(((job.finished_at or now) - job.created_at).total_seconds(), 1),
        "live": _backed(hints.live, job),
        "waiting": None,
        "why": job.why,
    }


def describe_attempt(attempt: Attempt, job: Job, hints: Hints) -> Report:
    """One attempt: what the durable store recorded, and what its lease says now."""
    holds = job.authority == attempt.token
    zombie = not holds and attempt.state in _ACTIVE
    return {
        "token": attempt.token,
        "attempt": str(attempt.id),
        "state": attempt.state,
        "authority": holds,
        "lease": "live"
        if attempt.token in hints.live_leases
        else "not live"
        if hints.reachable
        else "unknown",
        "worker": describe_worker(attempt.worker),
        "started": _iso(attempt.authorized_at),
        "activated": _iso(attempt.activated_at),
        "ended": _iso(attempt.ended_at),
        "resumed_from_bytes": attempt.initial_progress,
        "resumed_from_token": attempt.resumed_from,
        "progress": attempt.progress,
        "bytes_sent": attempt.bytes_sent,
        "stage": attempt.stage_state,
        "stage_location": attempt.stage_location,
        "outcome": attempt.outcome,
        "why": attempt.why,
        "zombie": zombie,
        "note": STOP_NOT_CONFIRMED if zombie else "",
    }


def describe_worker(worker: WorkerIncarnation) -> Report:
    return {
        "incarnation": str(worker.id),
        "host": worker.host,
        "pid": worker.pid,
        "role": worker.role,
        "state": worker.state,
        "up": worker.state == WorkerState.UP,
    }


def describe_result(result: CommittedResult) -> Report:
    return {
        "token": result.token,
        "members": result.members,
        "bytes": result.bytes,
        "manifest_digest": result.manifest_digest,
        "manifest_size": result.manifest_size,
        "location": result.location,
        "committed_at": _iso(result.committed_at),
    }


def hints_of(job_ids: Sequence[JobId]) -> dict[JobId, Hints]:
    """What Redis says of these jobs, in one call; nothing of any if it does not answer."""
    return dict.fromkeys(job_ids, NO_HINTS)


def _backed(live: Mapping[str, Any] | None, job: Job) -> Report | None:
    """Live progress only if the attempt that reported it still holds authority."""
    if live is None or job.phase != Phase.RUNNING or live["token"] != job.authority:
        return None
    return dict(live)


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
