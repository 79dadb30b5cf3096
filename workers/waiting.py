"""Why a job that is not running is not running: a pure function of what the stores say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from jobs.models import Job
from jobs.protocol.states import Phase
from workers import display
from workers.coordination.facts import CoordinationFacts, Marker
from workers.coordination.replies import ReserveReply


@dataclass(frozen=True, slots=True)
class Waiting:
    """`code` is for programs and stays as it is; `text` is for people."""

    code: str
    text: str


_REFUSED: Final[Mapping[str, str]] = {
    ReserveReply.GLOBAL_LIMIT: "as many jobs as allowed are running already (REMORA_GLOBAL_LIMIT)",
    ReserveReply.QUEUE_LIMIT: "its queue has as many running as allowed (REMORA_QUEUE_LIMITS)",
    ReserveReply.KEY_LIMIT: "its concurrency key has as many running as allowed (REMORA_KEY_LIMIT)",
    ReserveReply.LOCAL_LIMIT: "the worker that looked at it had all slots taken",
    ReserveReply.SETTLING: "Redis was wiped a moment ago: permits are kept for attempts that lost theirs",
}


def why_waiting(job: Job, facts: CoordinationFacts | None, now: datetime, *, served: bool) -> Waiting | None:
    """None if for nothing. `facts`: None if Redis does not answer; `served`: some worker takes its queue."""
    if job.phase == Phase.QUEUED:
        return _queued(job, facts, served)
    if job.phase == Phase.RETRY_WAIT:
        return _retry_wait(job, now)
    if job.phase == Phase.CANCELLING:
        return Waiting("cancelling", "cancel is requested: its worker is told to stop")
    if job.phase == Phase.RUNNING and facts is not None:
        return _running(job, facts)
    return None


def _queued(job: Job, facts: CoordinationFacts | None, served: bool) -> Waiting:
    if not served:
        return Waiting("no_worker", f"no worker that is up takes from queue {job.queue!r}")
    if facts is None:
        return Waiting("coordination_unreachable", "Redis does not answer: nothing can start until it does")
    if facts.reservation is not None:
        return Waiting("reserved", "a worker has reserved it and is about to start")
    if facts.marker is None:
        return Waiting("not_offered", "it is about to be offered to the workers")
    return _offered(facts.marker)


def _offered(marker: Marker) -> Waiting:
    if marker.refused in _REFUSED:
        ago = display.duration(marker.refused_age_ms / 1000)
        return Waiting(marker.refused, f"{_REFUSED[marker.refused]}, {ago} ago")
    waited = display.duration(marker.age_ms / 1000)
    return Waiting("offered", f"offered to the workers {waited} ago: none had a free slot yet")


def _retry_wait(job: Job, now: datetime) -> Waiting:
    remaining_s = (job.retry_at - now).total_seconds() if job.retry_at else 0.0
    when = f"in {display.duration(remaining_s)}" if remaining_s > 0 else "as soon as the retry duty runs"
    return Waiting(
        "backoff", f"the next attempt is due {when}" + (f"; the last: {job.why}" if job.why else "")
    )


def _running(job: Job, facts: CoordinationFacts) -> Waiting | None:
    """A running job waits for the reaper, or for its lease to be granted again, when its attempt has none."""
    lease = facts.lease
    if lease is not None and lease.token == job.authority and not lease.lapsed:
        return None
    reservation = facts.reservation
    if reservation is not None and reservation.expected_token == job.authority:
        return Waiting("activating", f"attempt {job.authority} is authorized and about to start")
    return Waiting("lease_not_live", f"attempt {job.authority} has no live lease: renewed again, or reaped")
