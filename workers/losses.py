"""What a slot held when its process died, given back and settled at once by the worker's main process."""

from __future__ import annotations

import logging
import random
import time
from typing import Final
from uuid import UUID

from django.db import connections

from jobs.errors import DurableStoreUnavailable
from jobs.ids import IncarnationId
from jobs.protocol import Fence
from jobs.values import Actor, ActorKind
from workers.coordination import CoordinationUnavailable, coordination
from workers.coordination.requests import ReleaseLeaseRequest, ReleaseReservationRequest
from workers.roster import Lost
from workers.settlement import Closed, Ending, How, carry_out, closing_of

log = logging.getLogger(__name__)
PAUSE_S_MAX: Final = 10.0


def settle_loss(incarnation: IncarnationId, lost: Lost) -> Closed | None:
    """The attempt's outcome, if there was an attempt that executed; its permit is given back in any case."""
    fence = Fence(UUID(lost.job_id), lost.token)
    actor = Actor(ActorKind.INCARNATION, str(incarnation))
    try:
        closed = None if lost.step == "reserve" else _settle(fence, actor)
        _give_back(incarnation, lost)
        return closed
    finally:
        # The children are forked from this process: it keeps no connection open that they could inherit.
        connections.close_all()


def _settle(fence: Fence, actor: Actor) -> Closed:
    """Until PostgreSQL answers, for as long as this process lives: nobody else can say that the attempt has
    stopped.
    """
    closing = closing_of(fence, Ending(How.DIED, died_of="its supervisor was killed"))
    pause_s = 0.05
    while True:
        try:
            return carry_out(closing, actor)
        except DurableStoreUnavailable:
            time.sleep(random.uniform(pause_s / 2, pause_s))
            pause_s = min(pause_s * 2, PAUSE_S_MAX)


def _give_back(incarnation: IncarnationId, lost: Lost) -> None:
    store = coordination()
    try:
        if lost.claim:
            store.release_reservation(
                [ReleaseReservationRequest(lost.job_id, lost.token, incarnation, lost.claim)]
            )
        if lost.attempt_id:
            store.release_lease([ReleaseLeaseRequest(lost.job_id, lost.token, lost.attempt_id)])
    except CoordinationUnavailable:
        log.info("PermitLeftToLapse", extra={"job": lost.job_id, "token": lost.token})
