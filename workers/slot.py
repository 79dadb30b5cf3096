"""One slot of a worker, as its supervisor (the pool child) knows it: its host, its lanes, its line to the
main process.

Made anew in every pool child after the fork: nothing of a connection is inherited. The line to the main
process says what this slot holds, so that the main process can settle it at once if this process dies; and
it brings orders.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from typing import Any, Final

from django.conf import settings

from jobs.ids import IncarnationId
from jobs.values import Actor, ActorKind
from workers.coordination import coordination
from workers.host.lines import Line, LineClosed
from workers.host.process import AttemptHost, HostFailed
from workers.lanes import Lane, Wake

log = logging.getLogger(__name__)


class Order(StrEnum):
    """What the main process tells a slot."""

    DRAIN = "drain"  # the worker is stopping: finish within the given time, then hand over
    DOWN = "down"  # the incarnation was declared Down: whatever runs here is a zombie


class Seated:
    """A pool child as the main process sees it: busy with something, or not."""

    def __init__(self, main: Line) -> None:
        self.main: Final = main

    def holds(self, **what: Any) -> None:
        """Tell the main process what this process holds, before it is taken; nothing when all was given
        back.
        """
        self._tell({"pid": os.getpid(), "host_pid": None, "holds": what or None})

    def _tell(self, message: dict[str, Any]) -> None:
        with suppress(LineClosed):
            self.main.send(message)


class Slot(Seated):
    """The state that a pool child keeps from one attempt to the next."""

    def __init__(
        self,
        incarnation: IncarnationId,
        kinds: frozenset[str],
        concurrency: int,
        main: Line,
        executing: Callable[[], int],
    ) -> None:
        self.incarnation: Final = incarnation
        self.kinds: Final = kinds
        self.concurrency: Final = concurrency
        self.actor: Final = Actor(ActorKind.INCARNATION, str(incarnation))
        super().__init__(main)
        self.executing: Final = executing
        self.coordination: Final = coordination()
        self.wake: Final = Wake()
        self.redis_lane: Final = Lane("redis", self.wake)
        self.durable_lane: Final = Lane("durable", self.wake)
        self.main_is_there = True
        self.drain_at: float | None = None
        self.is_down = False
        self._host: AttemptHost | None = None
        self._ends = False
        self._busy = False

    # --- orders of the main process, and what it is told --------------------------------------------------

    def orders(self) -> list[Order]:
        """What has been ordered since the last look. Never waits."""
        heard: list[Order] = []
        while self.main_is_there and select.select([self.main], [], [], 0)[0]:
            try:
                messages = self.main.read()
            except LineClosed:
                # The attempt goes on: its lease is kept here, and it can be settled without the main process.
                log.warning("MainProcessGone", extra={"incarnation": str(self.incarnation)})
                self.main_is_there = False
                break
            for message in messages:
                heard.append(self._obey(message))
        return heard

    def _obey(self, message: dict[str, Any]) -> Order:
        order = Order(message["order"])
        if order is Order.DRAIN:
            at = time.monotonic() + message["within_s"]
            self.drain_at = at if self.drain_at is None else min(self.drain_at, at)
        else:
            self.is_down = True
        return order

    @property
    def takes_work(self) -> bool:
        """Whether an offer may be taken up here."""
        self.orders()
        return self.drain_at is None and not self.is_down and self.main_is_there

    def holds(self, **what: Any) -> None:
        """Tell the main process what this slot holds, before it is taken; nothing when all was given back."""
        self._busy = bool(what)
        host_pid = self._host.pid if self._host is not None else None
        self._tell({"pid": os.getpid(), "host_pid": host_pid, "holds": what or None})

    # --- the attempt host ---------------------------------------------------------------------------------

    def prepare_host(self) -> None:
        """See to it that a host is starting or ready, without waiting for it."""
        if self._host is not None and not self._host.is_alive():
            self._host.end()
            self._host = None
        if self._host is None:
            self._host = AttemptHost.start()

    def host(self) -> AttemptHost:
        """A host that can run an attempt now, or HostFailed."""
        self.prepare_host()
        host = self._host
        if host is None:
            raise HostFailed("no attempt host could be started")
        host.wait_ready(float(settings.REMORA_HOST_START_S))
        return host

    def done_with_host(self, *, reusable: bool) -> None:
        """Keep it for the next attempt, or end it and start another."""
        host = self._host
        if host is None:
            return
        if not reusable or host.attempts >= settings.REMORA_HOST_ATTEMPTS_MAX or not host.is_alive():
            host.end()
            self._host = None
        if not self.is_down and self.main_is_there:
            self.prepare_host()

    def told_to_end(self) -> None:
        """SIGTERM to this very process: hand over what runs, then end. Runs in a signal handler."""
        self._ends = True
        self.drain_at = time.monotonic()
        self.wake.wake()
        if not self._busy:
            os._exit(0)

    def crash(self) -> None:
        """End this process as it stands. Its line to the main process ends with it, and says so."""
        os._exit(1)

    def end_if_told(self) -> None:
        """Between attempts. The host dies with this process."""
        self.orders()
        if self._ends or not self.main_is_there:
            os._exit(0)


def receive_line(door: socket.socket) -> Line:
    """A fresh line to the main process: one end is passed through the door that was inherited over the
    fork.
    """
    ours, theirs = socket.socketpair()
    with theirs:
        socket.send_fds(door, [str(os.getpid()).encode()], [theirs.fileno()])
    return Line(ours)
