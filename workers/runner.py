"""One offer, from arrival to the slot being free again: a flat pipeline. The end states are a closed set
(`Ran`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from jobs.transitions import Offer
from workers import intake
from workers.host.lines import LineClosed
from workers.host.process import HostFailed
from workers.intake import Left, Taken
from workers.settlement import Closed, Ending, How, carry_out, closing_of
from workers.slot import Slot
from workers.supervision import Supervision, Watched

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of an offer: left for one of the reasons of intake, or an attempt and how it was closed.

    `job_id` and `token` are set when an attempt ran, so that the caller can send the tasks that follow.
    """

    left: Left | None = None
    closed: Closed | None = None
    job_id: Any = None
    token: int = 0

    @property
    def leaves_a_stage(self) -> bool:
        return self.token > 0 and self.closed is not Closed.COMMITTED

    @property
    def may_want_dispatch(self) -> bool:
        """Whether the job may be Queued again already."""
        return self.closed in (Closed.DRAINED, Closed.RETRYABLE_FAILURE)


def run_offer(slot: Slot, offer: Offer) -> Ran:
    """Take the offer, watch the attempt, give everything back.

    An error that nobody expects is a crash of this slot: the process ends as it stands, and the main
    process, which knows what the slot held, settles it and ends its host. There is no second way of
    cleaning up to get wrong.
    """
    slot.holds(step="offer")  # busy from now on, also while its host is still loading
    try:
        ran = _run(slot, offer)
    except Exception:
        log.exception("SlotCrashes", extra={"job": str(offer.job_id), "token": offer.expected_token})
        slot.crash()
        raise
    slot.holds()
    return ran


def _run(slot: Slot, offer: Offer) -> Ran:
    taken = intake.take(slot, offer)
    if isinstance(taken, Left):
        return Ran(left=taken)
    watched = _watch(slot, taken)
    intake.give_back_lease(slot, taken.envelope)
    fence = taken.envelope.fence
    log.info(
        "AttemptClosed",
        extra={"job": str(fence.job_id), "token": fence.token, "closed": str(watched.closed)},
    )
    return Ran(closed=watched.closed, job_id=fence.job_id, token=fence.token)


def _watch(slot: Slot, taken: Taken) -> Watched:
    fence = taken.envelope.fence
    try:
        slot.holds(
            step="run", job=str(fence.job_id), token=fence.token, attempt=str(taken.envelope.attempt_id)
        )
        supervision = Supervision(slot, taken.envelope, slot.host(), taken.activated_at, taken.grant_epoch)
        watched = supervision.watch()
    except (HostFailed, LineClosed) as failure:
        return _no_host(slot, taken, str(failure))
    slot.done_with_host(reusable=watched.host_reusable)
    return watched


def _no_host(slot: Slot, taken: Taken, why: str) -> Watched:
    """No process to run it in: a failure of this machine, for which another attempt may well do better."""
    log.error("HostFailed", extra={"job": str(taken.envelope.fence.job_id), "why": why})
    slot.done_with_host(reusable=False)
    ending = Ending(How.DIED, died_of=why)
    closed = carry_out(closing_of(taken.envelope.fence, ending), slot.actor)
    return Watched(closed, ending, host_reusable=False)
