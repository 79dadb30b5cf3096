"""One attempt inside the host: run the handler, and say in one message how it ended. Nothing escapes from
here.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from jobs.errors import AttemptFenced, SpecInvalid
from jobs.protocol.states import OutcomeRequest
from workers.context import RunningAttempt, StopOrder
from workers.envelope import ExecutionEnvelope
from workers.failpoints import failpoint
from workers.handlers import handler_for
from workers.handlers.api import Disposition, StopRequested
from workers.host.lines import Line, Message

log = logging.getLogger(__name__)
_REASON_CHARS_MAX: Final = 2_000


def run_attempt(envelope: ExecutionEnvelope, line: Line, order: StopOrder) -> Message:
    """How it ended: success, failure, stopped or fenced; with the bytes that were sent."""
    ctx = RunningAttempt(envelope, line, order)
    ending: dict[str, Any]
    try:
        # Parameters of the envelope were checked by the supervisor; the spec is as it was when it was
        # accepted.
        descriptor = handler_for(envelope.kind).run(ctx)
        failpoint("handler.after", envelope.fence.job_id)
        ending = {
            "how": "success",
            "descriptor": {
                "digest": descriptor.digest,
                "size": descriptor.size,
                "members": descriptor.members,
                "bytes": descriptor.bytes,
                "location": descriptor.location,
            },
        }
    except StopRequested as stop:
        ending = {"how": "stopped", "reason": stop.reason.value}
    except AttemptFenced as fenced:
        ending = {"how": "fenced", "reason": str(fenced.reason)}
    except BaseException as failure:
        ending = _failed(envelope.kind, failure)
    return {"say": "ended", "sent": ctx.bytes_sent, **ending}


def _failed(kind: str, failure: BaseException) -> dict[str, Any]:
    disposition = _classified(kind, failure)
    # The text of an exception may hold a secret; its class, place and the handler's own reason do not.
    log.warning(
        "AttemptFailed",
        extra={"kind": kind, "error": type(failure).__name__, "reason": disposition.reason},
    )
    return {
        "how": "failure",
        "outcome": disposition.outcome.value,
        "reason": disposition.reason[:_REASON_CHARS_MAX],
        "retry_after_s": disposition.retry_after_s,
    }


def _classified(kind: str, failure: BaseException) -> Disposition:
    if isinstance(failure, SpecInvalid):
        return Disposition(OutcomeRequest.PERMANENT_FAILURE, f"the spec is not valid here: {failure}")
    try:
        return handler_for(kind).classify(failure)
    except Exception as defect:
        reason = f"{type(failure).__name__}, which its handler could not classify ({type(defect).__name__})"
        return Disposition(OutcomeRequest.RETRYABLE_FAILURE, reason)
