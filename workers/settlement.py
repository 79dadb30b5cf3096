"""From how a handler ended to what is recorded of it, and the recording: settle, or CooperativeStop and
FinalizeCancel.

`closing_of` is pure. `carry_out` is asked again until PostgreSQL answers: each of its steps may be repeated.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from jobs import transitions
from jobs.models import Job
from jobs.protocol import Accepted, Fence, Refused
from jobs.protocol.decision import Refusal
from jobs.protocol.states import LeaseState, OutcomeRequest, Phase
from jobs.store import job_of
from jobs.transitions import SettleRequest, StopReport
from jobs.values import Actor, AttemptEnd, Result
from workers.failpoints import failpoint
from workers.handlers.api import StopReason

log = logging.getLogger(__name__)


class How(StrEnum):
    """How the handler's run ended, as the supervisor saw it."""

    SUCCESS = "success"
    FAILURE = "failure"
    STOPPED = "stopped"
    FENCED = "fenced"
    DIED = "died"


@dataclass(frozen=True, slots=True)
class Ending:
    """What the host said at its end, or that it died. `stop` is why the supervisor had asked it to stop, if
    it had.
    """

    how: How
    told: Mapping[str, Any] = field(default_factory=dict)
    stop: StopReason | None = None
    lease: LeaseState | None = None
    died_of: str = ""
    bytes_sent: int | None = None


@dataclass(frozen=True, slots=True)
class Closing:
    """What to record: an outcome, or that the process has stopped."""

    fence: Fence
    settle: SettleRequest | None = None
    stop: StopReport | None = None
    died: bool = False


class Closed(StrEnum):
    """What became of an attempt in the durable store."""

    COMMITTED = "committed"
    RETRYABLE_FAILURE = "retryable_failure"
    PERMANENT_FAILURE = "permanent_failure"
    DRAINED = "drained"
    REJECTED = "rejected"
    STOPPED = "stopped"
    CANCELLED = "cancelled"


_CLOSED_AS = {
    AttemptEnd.COMMITTED: Closed.COMMITTED,
    AttemptEnd.RETRYABLE_FAILURE: Closed.RETRYABLE_FAILURE,
    AttemptEnd.PERMANENT_FAILURE: Closed.PERMANENT_FAILURE,
    AttemptEnd.DRAINED: Closed.DRAINED,
    AttemptEnd.REJECTED: Closed.REJECTED,
}


def closing_of(fence: Fence, ending: Ending) -> Closing:
    """An outcome that the handler reached counts, whatever was asked meanwhile: the durable store decides
    about it.
    """
    if ending.how is How.SUCCESS:
        return Closing(fence, settle=_success(fence, ending))
    if ending.how is How.FAILURE:
        return Closing(fence, settle=_failure(fence, ending))
    if ending.how is How.FENCED:
        return Closing(fence, stop=_stopped(fence, ending, f"fenced: {ending.told.get('reason', '')}"))
    stop = ending.stop
    if stop is StopReason.DRAIN:
        return Closing(fence, settle=_retryable(fence, ending, "drained", drained=True))
    if stop is StopReason.TIME_LIMIT:
        return Closing(fence, settle=_retryable(fence, ending, "its time limit passed"))
    if stop is not None:
        return Closing(fence, stop=_stopped(fence, ending, stop.value))
    reason = f"attempt process died ({ending.died_of})"
    return Closing(fence, settle=_retryable(fence, ending, reason), died=True)


def _success(fence: Fence, ending: Ending) -> SettleRequest:
    descriptor = ending.told["descriptor"]
    result = Result(
        manifest_digest=descriptor["digest"],
        manifest_size=descriptor["size"],
        members=descriptor["members"],
        bytes=descriptor["bytes"],
        location=descriptor["location"],
    )
    return SettleRequest(
        fence,
        OutcomeRequest.SUCCESS,
        result=result,
        total=descriptor["bytes"],
        bytes_sent=ending.bytes_sent,
    )


def _failure(fence: Fence, ending: Ending) -> SettleRequest:
    return SettleRequest(
        fence,
        OutcomeRequest(ending.told["outcome"]),
        reason=ending.told["reason"],
        retry_after_s=ending.told.get("retry_after_s"),
        bytes_sent=ending.bytes_sent,
    )


def _retryable(fence: Fence, ending: Ending, reason: str, *, drained: bool = False) -> SettleRequest:
    return SettleRequest(
        fence,
        OutcomeRequest.RETRYABLE_FAILURE,
        reason=reason,
        drained=drained,
        bytes_sent=ending.bytes_sent,
    )


def _stopped(fence: Fence, ending: Ending, why: str) -> StopReport:
    return StopReport(fence, ending.lease, ending.stop is StopReason.CANCEL, why)


def carry_out(closing: Closing, actor: Actor) -> Closed:
    """Record it. DurableStoreUnavailable when PostgreSQL is away: ask again."""
    if closing.settle is not None:
        closed = _settle(closing.settle, actor)
        if closed is Closed.DRAINED or (closing.died and _is_first_setback(closing.fence, closed)):
            transitions.schedule_retry([job_of(closing.fence)], due_only=False, actor=actor)
        return closed
    if closing.stop is None:
        raise ValueError("a closing records an outcome or a stop")
    failpoint("stop.before", closing.fence.job_id)
    (answer,) = transitions.cooperative_stop([closing.stop], actor=actor)
    failpoint("stop.after", closing.fence.job_id)
    if isinstance(answer, Refused) and answer.reason is Refusal.NO_REASON_TO_STOP:
        # It was taken for fenced and is not: what it did not finish is one failure, and the job goes on.
        request = SettleRequest(closing.fence, OutcomeRequest.RETRYABLE_FAILURE, reason=closing.stop.why)
        return _settle(request, actor)
    return _finalize_if_cancelling(closing.fence, actor, Closed.STOPPED)


def _settle(request: SettleRequest, actor: Actor) -> Closed:
    failpoint("settle.before", request.fence.job_id)
    (answer,) = transitions.settle([request], actor=actor)
    failpoint("settle.after", request.fence.job_id)
    if not isinstance(answer, Accepted):
        log.info("OutcomeRefused", extra=_of(request.fence) | {"reason": str(answer.reason)})
        return _finalize_if_cancelling(request.fence, actor, Closed.REJECTED)
    settled = answer.value
    log.info(
        settled.action, extra=_of(request.fence) | {"phase": str(settled.phase), "end": settled.end.value}
    )
    closed = _CLOSED_AS[settled.end]
    if settled.phase is Phase.CANCELLING:
        return _finalize_if_cancelling(request.fence, actor, closed)
    return closed


def _is_first_setback(fence: Fence, closed: Closed) -> bool:
    """The first time a job's process dies it need not wait: mostly that was not the job's doing. Then it
    backs off.
    """
    if closed is not Closed.RETRYABLE_FAILURE:
        return False
    facts = Job.objects.filter(id=job_of(fence)).values("failures", "losses_in_row").first()
    return facts is not None and facts["failures"] + facts["losses_in_row"] <= 1


def _finalize_if_cancelling(fence: Fence, actor: Actor, otherwise: Closed) -> Closed:
    """The process has stopped, so nothing is left to wait for; refused unless the job is Cancelling."""
    failpoint("finalized.before", fence.job_id)
    (answer,) = transitions.finalize_cancel([job_of(fence)], actor=actor, skip_locked=False)
    failpoint("finalized.after", fence.job_id)
    return Closed.CANCELLED if answer.accepted else otherwise


def _of(fence: Fence) -> dict[str, Any]:
    return {"job": str(fence.job_id), "token": fence.token}
