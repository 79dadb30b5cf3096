"""Drives jobs through their lives by the durable functions alone: a test says only what it is about."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs import submission, transitions
from jobs.ids import IncarnationId, JobId
from jobs.models import Attempt, Job, ProtocolEvent
from jobs.protocol import Accepted, CoordinationRecord, Fence, LeaseRecord
from jobs.protocol.states import LeaseState, OutcomeRequest
from jobs.store import job_of
from jobs.transitions import AuthorizeRequest, Grant, IncarnationFacts, SettleRequest
from jobs.values import Member, Observe, Result

KIND = "probe"


def accept_anything(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    return spec


def register() -> None:
    submission.register_kind(KIND, accept_anything)


def accept(**fields: Any) -> JobId:
    """A newly accepted job."""
    register()
    spec = fields.pop("spec", {"what": "nothing"})
    return submission.submit(KIND, spec, **fields).job_id


def start_worker(kinds: Sequence[str] = (KIND,)) -> IncarnationId:
    return transitions.start_incarnation(
        IncarnationFacts("node-1", 4711, "compute", ("default",), tuple(kinds), concurrency=4)
    )


def seeing(record: CoordinationRecord) -> Observe:
    """An observation that shows the same for every job."""
    return lambda job_ids: dict.fromkeys(job_ids, record)


def reserved_by(worker: IncarnationId) -> Observe:
    return seeing(CoordinationRecord(reservation=str(worker)))


def leased(token: int) -> Observe:
    return seeing(CoordinationRecord(leases=(LeaseRecord(token, LeaseState.LIVE),)))


NOTHING = seeing(CoordinationRecord())


def locate(kind: str, spec: Mapping[str, Any], fence: Fence) -> str:
    return f"/area/{fence.job_id}/{fence.token}"


def job(job_id: JobId) -> Job:
    found: Job = Job.objects.get(id=job_id)
    return found


def attempt(fence: Fence) -> Attempt:
    found: Attempt = Attempt.objects.get(job_id=job_of(fence), token=fence.token)
    return found


def request_for(job_id: JobId, worker: IncarnationId, expected_token: int | None = None) -> AuthorizeRequest:
    row = job(job_id)
    token = row.current_token + 1 if expected_token is None else expected_token
    return AuthorizeRequest(job_id, token, worker, row.spec_digest)


def authorize(job_id: JobId, worker: IncarnationId) -> Grant:
    (answer,) = transitions.authorize_attempt(
        [request_for(job_id, worker)], observe=reserved_by(worker), locate=locate
    )
    assert isinstance(answer, Accepted), answer
    return answer.value


def run(job_id: JobId, worker: IncarnationId) -> Fence:
    """An attempt that executes."""
    grant = authorize(job_id, worker)
    (answer,) = transitions.record_activated([grant.fence])
    assert answer.accepted, answer
    return grant.fence


def member(path: str, size: int = 1) -> Member:
    return Member(path.encode(), "file", size, hashlib.sha256(path.encode()).hexdigest(), 0o644, 1)


def checkpoint(fence: Fence, progress: int, *members: Member) -> Any:
    (answer,) = transitions.persist_checkpoint(
        [transitions.CheckpointRequest(fence, progress, {"at": progress}, members)]
    )
    return answer


def result_at(fence: Fence, location: str) -> Result:
    digest = hashlib.sha256(repr(fence).encode()).hexdigest()
    return Result(digest, 10, 1, 100, location)


def result(fence: Fence) -> Result:
    return result_at(fence, f"/area/{fence.job_id}/{fence.token}/manifest.json")


def success(fence: Fence, total: int = 100) -> SettleRequest:
    return SettleRequest(fence, OutcomeRequest.SUCCESS, result=result(fence), total=total)


def failure(fence: Fence, reason: str = "no space", **facts: Any) -> SettleRequest:
    return SettleRequest(fence, OutcomeRequest.RETRYABLE_FAILURE, reason, **facts)


def settle(request: SettleRequest) -> Any:
    (answer,) = transitions.settle([request])
    return answer


def succeed(job_id: JobId, worker: IncarnationId) -> Fence:
    fence = run(job_id, worker)
    answer = settle(success(fence))
    assert answer.accepted, answer
    return fence


def reap(fence: Fence, observe: Observe = NOTHING) -> Any:
    (answer,) = transitions.reap_lost_attempt([fence], observe=observe)
    return answer


def retry_now(job_id: JobId) -> Any:
    (answer,) = transitions.schedule_retry([job_id], due_only=False)
    return answer


def actions(job_id: JobId) -> list[str]:
    return list(ProtocolEvent.objects.filter(job_id=job_id).order_by("seq").values_list("action", flat=True))


@dataclass(frozen=True, slots=True)
class Kept:
    """All that is stored of a job, to be compared before and after something that must change nothing."""

    job: Any
    attempts: Any
    events: int


def kept(job_id: JobId) -> Kept:
    return Kept(
        Job.objects.filter(id=job_id).values().get(),
        list(Attempt.objects.filter(job_id=job_id).order_by("token").values()),
        ProtocolEvent.objects.filter(job_id=job_id).count(),
    )
