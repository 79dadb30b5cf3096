"""The supervisor's loop over one running attempt: one thread, one select, no call in it that can block.

It hears four things: the host (progress, the end), the worker's main process (drain, hurry, down), and the
two lanes (answers of Redis and of PostgreSQL). It keeps the lease until the outcome has been recorded, and
not longer.
"""

from __future__ import annotations

import logging
import select
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from django.conf import settings

from jobs.errors import DurableStoreUnavailable
from jobs.protocol.states import LeaseState
from workers.envelope import ExecutionEnvelope
from workers.escalation import Step, StopLadder
from workers.handlers.api import StopReason
from workers.heart import SILENCE, Heart, Heartbeat
from workers.heartbeat import Pulse, Rhythm, TrustWindow
from workers.host.lines import LineClosed, Message
from workers.host.process import AttemptHost
from workers.lanes import Came
from workers.settlement import Closed, Ending, How, carry_out, closing_of
from workers.slot import Order, Slot

log = logging.getLogger(__name__)
WAIT_S_MAX: Final = 1.0
SETTLE_PAUSE_S_MAX: Final = 2.0


@dataclass(frozen=True, slots=True)
class Watched:
    """How an attempt ended for its supervisor: what was recorded, and whether the host may serve another
    attempt.
    """

    closed: Closed | None
    ending: Ending
    host_reusable: bool


class Supervision:
    """One attempt from activated to recorded."""

    def __init__(
        self,
        slot: Slot,
        envelope: ExecutionEnvelope,
        host: AttemptHost,
        activated_at: float,
        grant_epoch: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._slot = slot
        self._envelope = envelope
        self._host = host
        self._clock = clock
        self._heart = Heart(slot.coordination, envelope, grant_epoch)
        self._window = TrustWindow.opened(activated_at, settings.REMORA_LEASE_MS / 1000)
        self._rhythm = Rhythm(settings.REMORA_RENEW_MS / 1000, activated_at + settings.REMORA_RENEW_MS / 1000)
        self._ladder = StopLadder(float(settings.REMORA_STOP_GRACE_S))
        self._limit_at = None if envelope.time_limit_s is None else activated_at + envelope.time_limit_s
        self._drain_at: float | None = slot.drain_at
        self._lease = LeaseState.LIVE
        self._sent: int | None = None
        self._ending: Ending | None = None
        self._closed: Closed | None = None
        self._settle_at = 0.0
        self._authority_at = 0.0
        self._settle_pause_s = 0.1
        self._given_up = False

    def watch(self) -> Watched:
        """Until the outcome has been recorded, or nothing that this process does can matter any more."""
        self._host.run(self._envelope.as_message())
        while self._closed is None and not self._given_up:
            self._wait()
            now = self._clock()
            self._hear_main(now)
            self._hear_lanes(now)
            if self._ending is None:
                self._hear_host(now)
                self._keep_time(now)
                self._ask_authority(now)
            else:
                self._record(now)
            self._beat(now)
        self._slot.redis_lane.drop()
        self._slot.durable_lane.drop()
        ending = self._ending or self._ended(How.FENCED, {})
        reusable = ending.how in (How.SUCCESS, How.FAILURE) and self._ladder.reason is None
        return Watched(self._closed, ending, reusable)

    # --- waiting ------------------------------------------------------------------------------------------

    def _wait(self) -> None:
        sources: list[Any] = [self._slot.wake]
        if self._slot.main_is_there:
            sources.append(self._slot.main)
        if self._ending is None:
            sources.append(self._host.line)
        due = [at for at in self._due_times() if at is not None]
        timeout_s = min([WAIT_S_MAX, *(at - self._clock() for at in due)])
        select.select(sources, [], [], max(timeout_s, 0.0))
        self._slot.wake.clear()

    def _due_times(self) -> list[float | None]:
        if self._ending is not None:
            return [None if self._slot.durable_lane.busy else self._settle_at, self._next_beat_at()]
        return [
            self._next_beat_at(),
            None if self._host.frozen else self._window.closes_at,
            self._ladder.due_at,
            self._limit_at,
            self._drain_at,
        ]

    def _next_beat_at(self) -> float | None:
        if self._slot.redis_lane.busy or self._lease is LeaseState.EXPIRED:
            return None
        return self._rhythm.due_at

    # --- hearing ------------------------------------------------------------------------------------------

    def _hear_main(self, now: float) -> None:
        for order in self._slot.orders():
            if order is Order.DOWN:
                self._lease = LeaseState.EXPIRED
                self._end(How.FENCED, {"reason": "its incarnation was declared Down"})
                self._given_up = True
            else:
                self._drain_at = self._slot.drain_at

    def _hear_host(self, now: float) -> None:
        readable, _, _ = select.select([self._host.line], [], [], 0)
        if not readable:
            return
        try:
            messages = self._host.line.read()
        except LineClosed:
            self._host.end()
            self._ending = self._ended(How.DIED, {}, died_of=self._host.ending())
            log.warning("HostDied", extra=self._tags() | {"ending": self._host.ending()})
            return
        for message in messages:
            self._hear_message(message)

    def _hear_message(self, message: Message) -> None:
        self._sent = message.get("sent", self._sent)
        if message["say"] == "progress":
            self._heart.progress(message["progress"], message["total"], message["phase"])
        elif message["say"] == "ended" and self._ending is None:
            self._ending = self._ended(How(message["how"]), message)
            log.info("HandlerEnded", extra=self._tags() | {"how": message["how"]})

    def _hear_lanes(self, now: float) -> None:
        if (came := self._slot.redis_lane.take()) is not None:
            self._on_beat(came, now)
        if (came := self._slot.durable_lane.take()) is not None:
            if came.name == "record":
                self._on_recorded(came, now)
            else:
                self._on_beat(came, now)

    # --- the heart ----------------------------------------------------------------------------------------

    def _beat(self, now: float) -> None:
        """Renew when due. A lost lease needs PostgreSQL's word first, so it is asked for on that lane."""
        due_at = self._next_beat_at()
        if due_at is None or now < due_at:
            return
        if self._lease is LeaseState.LIVE:
            self._slot.redis_lane.start("beat", now, self._heart.renew)
        elif not self._slot.durable_lane.busy:
            self._slot.durable_lane.start("beat", now, self._heart.regrant)
        self._rhythm.beaten(now, Pulse.SILENT)

    def _ask_authority(self, now: float) -> None:
        """Frozen, and Redis silent: PostgreSQL is asked now and then, so that a fenced attempt does not
        linger.
        """
        if self._host.frozen and now >= self._authority_at and not self._slot.durable_lane.busy:
            self._authority_at = now + settings.REMORA_LEASE_MS / 1000
            self._slot.durable_lane.start("authority", now, self._heart.authority)

    def _on_beat(self, came: Came, now: float) -> None:
        if came.error is not None and not isinstance(came.error, self._heart.world_errors):
            raise came.error
        beat: Heartbeat = came.value if came.error is None else SILENCE
        self._rhythm.beaten(now, beat.pulse)
        if beat.pulse is Pulse.RENEWED:
            self._lease = LeaseState.LIVE
            self._window.renewed(came.started_at)
            if self._ending is None and not self._window.is_closed(now):
                self._host.thaw()
        elif beat.pulse is Pulse.LOST:
            self._lease = LeaseState.LOST
            self._rhythm.due_at = min(self._rhythm.due_at, now + beat.again_in_s)
        elif beat.pulse is Pulse.OVER:
            self._lease = LeaseState.EXPIRED
            log.warning("LeaseOver", extra=self._tags() | {"reply": beat.reply})
            self._ask_stop(StopReason.LEASE_LOST, now)
        if beat.cancel:
            self._ask_stop(StopReason.CANCEL, now)

    # --- what time brings ---------------------------------------------------------------------------------

    def _keep_time(self, now: float) -> None:
        if self._ending is not None:
            return
        if self._window.is_closed(now) and not self._host.frozen and self._lease is not LeaseState.EXPIRED:
            self._host.freeze()
            log.warning("TrustWindowClosed", extra=self._tags() | {"host_pid": self._host.pid})
        if self._limit_at is not None and now >= self._limit_at:
            self._limit_at = None
            self._ask_stop(StopReason.TIME_LIMIT, now)
        if self._drain_at is not None and now >= self._drain_at:
            self._drain_at = None
            self._ask_stop(StopReason.DRAIN, now)
        step = self._ladder.climb(now)
        if step is Step.TERMINATED:
            log.info("StopTerminates", extra=self._tags() | {"reason": str(self._ladder.reason)})
            self._host.terminate()
        elif step is Step.KILLED:
            log.info("StopKills", extra=self._tags() | {"reason": str(self._ladder.reason)})
            self._end(How.STOPPED, {})

    def _ask_stop(self, reason: StopReason, now: float) -> None:
        if self._ending is None and self._ladder.ask(reason, now):
            log.info("StopRequested", extra=self._tags() | {"reason": reason.value})
            self._host.ask_stop(reason.value)
            if self._host.frozen:
                # Trust is gone, so it may not be let on to hear the request: it is ended as it stands.
                self._end(How.STOPPED, {})

    # --- the end ------------------------------------------------------------------------------------------

    def _end(self, how: How, told: Message) -> None:
        """End the host as a whole, now."""
        if self._ending is None:
            self._host.end()
            self._ending = self._ended(how, told)

    def _ended(self, how: How, told: Message, died_of: str = "") -> Ending:
        lease = self._lease if self._lease in (LeaseState.EXPIRED, LeaseState.LOST) else None
        return Ending(how, told, self._ladder.reason, lease, died_of, self._sent)

    def _record(self, now: float) -> None:
        """Ask PostgreSQL until it answers. The lease is kept alive meanwhile: finished work is not thrown
        away.
        """
        if self._ending is None or self._closed is not None or self._given_up:
            return
        if self._slot.durable_lane.busy or now < self._settle_at:
            return
        closing = closing_of(self._envelope.fence, self._ending)
        self._slot.durable_lane.start("record", now, lambda: carry_out(closing, self._slot.actor))

    def _on_recorded(self, came: Came, now: float) -> None:
        if came.error is None:
            self._closed = came.value
            return
        if not isinstance(came.error, DurableStoreUnavailable):
            raise came.error
        log.warning("SettleAgain", extra=self._tags() | {"error": str(came.error)})
        self._settle_at = now + self._settle_pause_s
        self._settle_pause_s = min(self._settle_pause_s * 2, SETTLE_PAUSE_S_MAX)

    def _tags(self) -> dict[str, Any]:
        return {"job": str(self._envelope.fence.job_id), "token": self._envelope.fence.token}
