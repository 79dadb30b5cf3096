"""This worker's main process as one incarnation: registered before the pool starts, Down when it has ended.

Celery's signals call into here (celery_worker.py). Everything here runs in the main process, but
`in_pool_child`. The main process holds no connection open while it may fork: its calls to PostgreSQL are
rare, and closed at once.
"""

from __future__ import annotations

import atexit
import logging
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from django.conf import settings
from django.db import connections

from jobs.errors import DurableStoreUnavailable
from jobs.ids import IncarnationId
from jobs.protocol.states import WorkerState
from workers import fleet, handlers
from workers.coordination import CoordinationUnavailable, coordination
from workers.host import processes
from workers.losses import settle_loss
from workers.roster import Lost, Roster
from workers.settlement import Closed
from workers.slot import Order, Seated, Slot, receive_line

log = logging.getLogger(__name__)
RESTART_S_MAX: Final = 15.0


@dataclass(slots=True)
class Hearing:
    """When this worker last got an answer to its poll for offers; written by the consumer, read by the
    watch.
    """

    heard_at: float
    attached: bool = False

    def attach(self) -> None:
        """The consumer has a (new) connection from now on."""
        self.attached = True
        self.heard()

    def heard(self) -> None:
        self.heard_at = time.monotonic()

    def silent_s(self) -> float:
        return time.monotonic() - self.heard_at


class Incarnation:
    """One start of this worker."""

    def __init__(
        self,
        name: str,
        queues: Sequence[str],
        concurrency: int,
        follow_up: Callable[[str, int, Closed], None],
    ) -> None:
        kinds = handlers.kinds()
        facts = fleet.facts_of_this_process(name, queues, kinds, concurrency)
        self.id: Final[IncarnationId] = fleet.start_incarnation(facts)
        self.runs_jobs: Final = "compute" in facts.role
        self.kinds: Final = frozenset(kinds)
        self.concurrency: Final = concurrency
        self.hearing: Final = Hearing(time.monotonic())
        self._follow_up = follow_up
        self._roster: Final = Roster(self._on_lost)
        self._stopping = threading.Event()
        self._restarting = False
        self._main_pid: Final = os.getpid()
        connections.close_all()

    def start_watching(self) -> None:
        """Called in the main process before the pool forks; the threads themselves are not inherited."""
        self._roster.start()
        threading.Thread(target=self._watch, name="presence", daemon=True).start()

    # --- in a pool child ----------------------------------------------------------------------------------

    def in_pool_child(self) -> Slot | Seated:
        """Make this child's slot; on a worker that runs no jobs, only its line to the main process."""
        processes.die_with_parent(self._main_pid, signal.SIGTERM)
        self._roster.in_child()
        line = receive_line(self._roster.door)
        if not self.runs_jobs:
            return Seated(line)
        processes.adopt_orphans()
        slot = Slot(self.id, self.kinds, self.concurrency, line, self._roster.executing)
        slot.prepare_host()
        slot.holds()
        return slot

    # --- the end ------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """The worker was told to stop; told again, it is in a hurry. Runs in a signal handler."""
        again = self._stopping.is_set()
        self._stopping.set()
        self._roster.order(Order.DRAIN, within_s=0 if again else settings.REMORA_DRAIN_S)

    def ended(self) -> None:
        """The pool has stopped: nothing of this incarnation runs any more."""
        self._stopping.set()
        try:
            fleet.declare_down(self.id, "its worker was shut down")
        except DurableStoreUnavailable as error:
            log.warning("LeftToWatchdog", extra={"incarnation": str(self.id), "error": str(error)})
        finally:
            connections.close_all()

    def _on_lost(self, lost: Lost) -> None:
        try:
            closed = settle_loss(self.id, lost)
            if closed is not None:
                self._follow_up(lost.job_id, lost.token, closed)
        finally:
            connections.close_all()

    # --- the watch ----------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Renew the presence, and notice if this worker is deaf or has been declared Down."""
        period_s = min(settings.REMORA_PRESENCE_MS / 3000, float(settings.REMORA_WATCHDOG_S))
        while not self._restarting:
            redis_answers = self._renew_presence()
            if not self._stopping.is_set():
                if self._is_down():
                    self._roster.order(Order.DOWN)
                    self._restart("it was declared Down")
                elif redis_answers and self._is_deaf():
                    self._restart(f"it has not been able to poll for {self.hearing.silent_s():.0f} s")
            time.sleep(period_s * random.uniform(0.8, 1.0))

    def _renew_presence(self) -> bool:
        try:
            coordination().renew_presence([self.id])
        except CoordinationUnavailable:
            # Whoever cannot poll because nobody answers is not deaf; its time starts when Redis is back.
            self.hearing.heard()
            return False
        return True

    def _is_deaf(self) -> bool:
        """A slot is there and free, Redis answers, and yet no poll has been answered for too long."""
        if self._roster.free() <= 0:
            self.hearing.heard()
        return self.hearing.attached and self.hearing.silent_s() > settings.REMORA_DEAF_S

    def _is_down(self) -> bool:
        try:
            return fleet.state_of(self.id) is WorkerState.DOWN
        except Exception as error:  # PostgreSQL is away: whether it is Down will be known when it is back
            log.info("IncarnationNotKnown", extra={"error": type(error).__name__})
            return False
        finally:
            connections.close_all()

    def _restart(self, why: str) -> None:
        """Start anew in the same process id: an orderly stop, and at its end another program image.

        A new incarnation; the attempts that run are handed over. If the stop itself hangs, it is not waited
        for.
        """
        log.error("WorkerRestarts", extra={"incarnation": str(self.id), "why": why})
        self._restarting = True
        atexit.register(_start_anew)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(settings.REMORA_DRAIN_S + 2 * settings.REMORA_STOP_GRACE_S + RESTART_S_MAX)
        _start_anew()


def _start_anew() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606
