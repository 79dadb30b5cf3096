"""A job as people and programs want to see it: the durable facts, with Redis' hints beside them.

PostgreSQL says what is so. What Redis says is shown only where it fits what PostgreSQL says, with its age:
progress that another attempt than the authority reported is not shown. If Redis cannot be reached, the
durable facts are. The same report serves `show --json`, the admin and its refreshing view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

from jobs import pages
from jobs.errors import NoSuchJob
from jobs.ids import JobId
from jobs.models import Attempt, CommittedResult, Job, WorkerIncarnation
from jobs.pages import JobFilter
from jobs.protocol.states import AttemptState, Phase, WorkerState
from workers.coordination import CoordinationUnavailable, coordination
from workers.coordination.facts import CoordinationFacts
from workers.fleet import queue_of
from workers.waiting import why_waiting

Report = dict[str, Any]
STOP_NOT_CONFIRMED: Final = "authority lost, stop not confirmed"
_ACTIVE: Final = (AttemptState.AUTHORIZED, AttemptState.EXECUTING)


@dataclass(frozen=True, slots=True)
class Seen:
    """Seen beside the rows: Redis' facts (None if it does not answer), queues with a worker, a clock."""

    facts: Mapping[JobId | str, CoordinationFacts] | None
    served: frozenset[str]
    now: datetime

    def of(self, job_id: JobId) -> CoordinationFacts | None:
        return None if self.facts is None else self.facts[job_id]


def describe(job_id: JobId) -> Report:
    """Everything about one job, or NoSuchJob."""
    detail = pages.job_detail(job_id)
    if detail is None:
        raise NoSuchJob(job_id)
    seen = look([job_id], detail.now)
    job, facts = detail.job, seen.of(job_id)
    attempts = [describe_attempt(attempt, job, facts) for attempt in detail.attempts]
    return {
        **summary(job, seen),
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
            "progress": min(job.checkpoint, detail.result.bytes) if detail.result else job.checkpoint,
            "token": job.checkpoint_token,
            "valid": job.checkpoint_valid,
            "at": _iso(job.checkpoint_at),
        },
        "result": describe_result(detail.result) if detail.result else None,
        "coordination_reachable": facts is not None,
    }


def list_jobs(wanted: JobFilter, *, rows_max: int, before: JobId | None = None) -> tuple[list[Report], bool]:
    """Summaries, newest first, and whether there are more."""
    jobs = pages.list_jobs(wanted, rows_max=rows_max + 1, before=before)
    return summaries(jobs[:rows_max]), len(jobs) > rows_max


def summaries(jobs: Sequence[Job]) -> list[Report]:
    """One line each for these jobs, with a single look into Redis."""
    seen = look([job.id for job in jobs], pages.now())
    return [summary(job, seen) for job in jobs]


def summary(job: Job, seen: Seen) -> Report:
    """What a list shows of a job."""
    facts = seen.of(job.id)
    waiting = why_waiting(job, facts, seen.now, served=queue_of(job.queue) in seen.served)
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
        "age_s": round(((job.finished_at or seen.now) - job.created_at).total_seconds(), 1),
        "live": _backed(facts, job),
        "waiting": asdict(waiting) if waiting else None,
        "why": job.why,
    }


def describe_attempt(attempt: Attempt, job: Job, facts: CoordinationFacts | None) -> Report:
    """One attempt: what the durable store recorded, and what its lease says now."""
    holds = job.authority == attempt.token
    zombie = not holds and attempt.state in _ACTIVE
    return {
        "token": attempt.token,
        "attempt": str(attempt.id),
        "state": attempt.state,
        "authority": holds,
        "lease": _lease(attempt.token, facts),
        "worker": describe_worker(attempt.worker),
        "started": _iso(attempt.authorized_at),
        "activated": _iso(attempt.activated_at),
        "ended": _iso(attempt.ended_at),
        "resumed_from_bytes": attempt.initial_progress,
        "resumed_from_token": attempt.resumed_from,
        "progress": _bytes(attempt),
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


def look(job_ids: Sequence[JobId], now: datetime) -> Seen:
    """Ask Redis once for all these jobs, and PostgreSQL who takes from which queue."""
    served = frozenset(pages.queues_served())
    try:
        facts: Mapping[JobId | str, CoordinationFacts] | None = coordination().snapshot(job_ids).facts
    except CoordinationUnavailable:
        facts = None
    return Seen(facts, served, now)


def _bytes(attempt: Attempt) -> int:
    """Staged bytes: the protocol's progress without the unit that stands for the sealed manifest."""
    return attempt.progress - (attempt.progress == attempt.progress_max)


def _backed(facts: CoordinationFacts | None, job: Job) -> Report | None:
    """Live progress only if the attempt that reported it still holds authority."""
    live = facts.progress if facts else None
    if live is None or job.phase != Phase.RUNNING or live.token != job.authority:
        return None
    return {
        "token": live.token,
        # A report may be older than the checkpoint of the same attempt, and may not look like a step back.
        "progress": max(live.progress, job.checkpoint if job.checkpoint_token == live.token else 0),
        "total": live.total,
        "phase": live.phase,
        "age_s": live.age_ms / 1000,
    }


def _lease(token: int, facts: CoordinationFacts | None) -> str:
    """Past its deadline a lease is still live until a sweep takes it; a renewal that comes first saves it."""
    if facts is None:
        return "unknown"
    if facts.lease is None or facts.lease.token != token:
        return "not live"
    return "overdue" if facts.lease.lapsed else "live"


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()
