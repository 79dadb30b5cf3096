"""From an offer to an activated attempt: Reserve, AuthorizeAttempt, the envelope, ActivateAttempt,
"executing".

A flat pipeline of small steps. Each way out gives back what had been taken, and says which step it was.
Nothing here runs a handler, and nothing is written to the target before the last step.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar

from django.conf import settings

from jobs import queries, transitions
from jobs.errors import DurableStoreUnavailable
from jobs.ids import AttemptId, new_id
from jobs.protocol import Accepted, Fence
from jobs.transitions import AuthorizeRequest, Offer
from jobs.values import Answer
from workers.coordination import CoordinationUnavailable
from workers.coordination.replies import ReserveReply
from workers.coordination.requests import (
    ActivateRequest,
    ReleaseLeaseRequest,
    ReleaseReservationRequest,
    ReserveRequest,
)
from workers.envelope import ExecutionEnvelope
from workers.failpoints import failpoint
from workers.handlers import handler_for
from workers.host.process import HostFailed
from workers.observing import observe
from workers.permits import limits_for
from workers.slot import Slot

log = logging.getLogger(__name__)
T = TypeVar("T")
TRIES_MAX: Final = 4


class NotTaken(StrEnum):
    """Why an offer was not taken up. None is an error: somebody will offer again what is still due."""

    STOPPING = "stopping"
    KIND_NOT_SERVED = "kind_not_served"
    NO_HOST = "no_host"
    NOT_RESERVED = "not_reserved"
    NOT_AUTHORIZED = "not_authorized"
    ENVELOPE_UNFIT = "envelope_unfit"
    NOT_ACTIVATED = "not_activated"
    NOT_EXECUTING = "not_executing"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class Taken:
    """An attempt that executes from now on. `activated_at` is from before the call that granted its lease."""

    envelope: ExecutionEnvelope
    activated_at: float
    grant_epoch: str


@dataclass(frozen=True, slots=True)
class Left:
    """The offer was left, with the reply or refusal that decided it."""

    why: NotTaken
    detail: str = ""


def take(slot: Slot, offer: Offer) -> Taken | Left:
    """Drive one offer through all steps."""
    if not slot.takes_work:
        return _left(offer, NotTaken.STOPPING)
    if offer.kind not in slot.kinds:
        # Left for a worker that knows it: nothing is reserved, and the marker is offered again after a while.
        return _left(offer, NotTaken.KIND_NOT_SERVED, offer.kind)
    claim = new_id()
    try:
        # Before anything is taken: a process that has to load first must not do so on a lease's time.
        slot.host()
        refused = _reserve(slot, offer, claim)
        if refused is not None:
            return _left(offer, NotTaken.NOT_RESERVED, refused)
        return _with_reservation(slot, offer, claim)
    except HostFailed as failure:
        return _left(offer, NotTaken.NO_HOST, str(failure))
    except (CoordinationUnavailable, DurableStoreUnavailable) as error:
        # Whatever was taken lapses: the reservation by Redis' clock, the attempt by the reaper.
        return _left(offer, NotTaken.UNREACHABLE, type(error).__name__)


def _reserve(slot: Slot, offer: Offer, claim: AttemptId) -> str | None:
    slot.holds(step="reserve", job=str(offer.job_id), token=offer.expected_token, claim=str(claim))
    request = ReserveRequest(
        job_id=str(offer.job_id),
        expected_token=offer.expected_token,
        incarnation=slot.incarnation,
        claim=claim,
        queue=offer.queue,
        concurrency_key=offer.concurrency_key,
        limits=limits_for(offer.queue, local_limit=slot.concurrency),
        # This slot runs nothing now, though the main process may not have heard of it yet.
        executing_here=min(slot.executing(), slot.concurrency - 1),
    )
    failpoint("reserve.before", offer.job_id)
    (reply,) = _persistently(lambda: slot.coordination.reserve([request], settle_ms=settings.REMORA_RENEW_MS))
    if reply is ReserveReply.SETTLING and not queries.running(rows_max=1):
        # A store that is new because everything is: no attempt is waiting to have its lease granted again.
        (reply,) = _persistently(lambda: slot.coordination.reserve([request]))
    failpoint("reserve.after", offer.job_id)
    return None if reply.granted else reply.value


def _with_reservation(slot: Slot, offer: Offer, claim: AttemptId) -> Taken | Left:
    request = AuthorizeRequest(offer.job_id, offer.expected_token, slot.incarnation, offer.spec_digest)
    (answer,) = _persistently(
        lambda: transitions.authorize_attempt([request], observe=observe, locate=locate, actor=slot.actor)
    )
    failpoint("authorize.after", offer.job_id)
    if not isinstance(answer, Accepted):
        _give_back_reservation(slot, offer, claim)
        return _left(offer, NotTaken.NOT_AUTHORIZED, str(answer.reason))
    grant = answer.value
    envelope = ExecutionEnvelope.of(grant, time_limit_of(grant.kind, grant.spec))
    fault = envelope.fault(offer, slot.incarnation, slot.kinds)
    if fault is not None:
        # The token is spent; the reaper ends the attempt as soon as its reservation is gone.
        log.error("EnvelopeUnfit", extra=_of(offer) | {"fault": fault.value})
        _give_back_reservation(slot, offer, claim)
        return _left(offer, NotTaken.ENVELOPE_UNFIT, fault.value)
    return _activate(slot, offer, envelope, claim)


def _activate(slot: Slot, offer: Offer, envelope: ExecutionEnvelope, claim: AttemptId) -> Taken | Left:
    fence = envelope.fence
    slot.holds(
        step="activate",
        job=str(fence.job_id),
        token=fence.token,
        attempt=str(envelope.attempt_id),
        claim=str(claim),
    )
    activated_at = time.monotonic()
    request = ActivateRequest(
        job_id=str(fence.job_id),
        token=fence.token,
        attempt_id=envelope.attempt_id,
        incarnation=slot.incarnation,
        claim=claim,
        progress=envelope.initial_progress,
    )
    failpoint("activate.before", offer.job_id)
    (grant,) = _persistently(lambda: slot.coordination.activate_attempt([request]))
    if not grant.reply.granted:
        _give_back_reservation(slot, offer, claim)
        return _left(offer, NotTaken.NOT_ACTIVATED, grant.reply.value)
    failpoint("activate.after", offer.job_id)
    (answer,) = _recorded(slot, fence)
    failpoint("executing.after", offer.job_id)
    if not isinstance(answer, Accepted):
        give_back_lease(slot, envelope)
        return _left(offer, NotTaken.NOT_EXECUTING, str(answer.reason))
    log.info("ActivateAttempt", extra=_of(offer) | {"initial_progress": envelope.initial_progress})
    return Taken(envelope, activated_at, grant.epoch)


def _recorded(slot: Slot, fence: Fence) -> list[Answer[Any]]:
    """The durable half of ActivateAttempt checks the authority again, under the row lock."""
    return _persistently(lambda: transitions.record_activated([fence], actor=slot.actor))


def locate(kind: str, spec: Any, fence: Fence) -> str:
    """Where an attempt stages: its handler says."""
    return handler_for(kind).area(spec, fence)


def time_limit_of(kind: str, spec: Mapping[str, Any]) -> float | None:
    """How long one attempt may take, if its handler knows a limit. The supervisor enforces it, not the
    handler.
    """
    limit = getattr(handler_for(kind), "time_limit_s", None)
    return None if limit is None else limit(spec)


def _give_back_reservation(slot: Slot, offer: Offer, claim: AttemptId) -> None:
    request = ReleaseReservationRequest(str(offer.job_id), offer.expected_token, slot.incarnation, claim)
    try:
        slot.coordination.release_reservation([request])
    except CoordinationUnavailable:
        log.warning("ReservationLeftToLapse", extra=_of(offer))


def give_back_lease(slot: Slot, envelope: ExecutionEnvelope) -> None:
    """ReleaseLease for an attempt that is over. What cannot be given back now, coordination GC gives back."""
    fence = envelope.fence
    failpoint("release.before", fence.job_id)
    try:
        slot.coordination.release_lease(
            [ReleaseLeaseRequest(str(fence.job_id), fence.token, envelope.attempt_id)]
        )
    except CoordinationUnavailable:
        log.warning("LeaseLeftToLapse", extra={"job": str(fence.job_id), "token": fence.token})
    failpoint("release.after", fence.job_id)


def _persistently(call: Callable[[], T]) -> T:
    """A few tries over a short outage. Every step may be asked again: the claim and the token make it the
    same one.
    """
    for try_number in range(1, TRIES_MAX + 1):
        try:
            return call()
        except (CoordinationUnavailable, DurableStoreUnavailable):
            if try_number == TRIES_MAX:
                raise
        time.sleep(random.uniform(0.05, 0.1 * 2**try_number))
    raise AssertionError("unreachable")


def _left(offer: Offer, why: NotTaken, detail: str = "") -> Left:
    log.info("OfferLeft", extra=_of(offer) | {"why": why.value, "detail": detail})
    return Left(why, detail)


def _of(offer: Offer) -> dict[str, Any]:
    return {"job": str(offer.job_id), "token": offer.expected_token}
