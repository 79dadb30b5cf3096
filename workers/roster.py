"""The main process' view of its slots: what each holds, and that a slot whose process died is noticed at
once.

Each pool child has a line of its own to the main process; when the child is gone, however it went, the
kernel ends that line. Then the child's attempt host is ended too, and `on_lost` settles what the child
held: nobody waits for a lease to lapse. Celery's own notice of a lost child comes seconds later and knows
nothing of attempts.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from mmap import mmap
from typing import Any, Final

from workers.host import processes
from workers.host.lines import Line, LineClosed, Message
from workers.lanes import Wake
from workers.slot import Order

log = logging.getLogger(__name__)
_NUMBER: Final = struct.Struct("i")
HOST_END_S: Final = 5.0


@dataclass(slots=True)
class Seat:
    """One pool child, as it last described itself."""

    pid: int
    line: Line
    host_pid: int | None = None
    holds: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Lost:
    """What a slot held when its process died. `step` is reserve, activate or run."""

    pid: int
    step: str
    job_id: str
    token: int
    attempt_id: str = ""
    claim: str = ""


class Roster:
    """One thread of the main process. Made before the fork; `door` is what the children inherit of it."""

    def __init__(self, on_lost: Callable[[Lost], None]) -> None:
        self._on_lost = on_lost
        self._inner, self.door = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._seats: dict[int, Seat] = {}
        self._wake = Wake()
        self._orders: list[Message] = []
        self._standing: Message | None = None
        self._executing = mmap(-1, _NUMBER.size)
        self._mutex = threading.Lock()

    def start(self) -> None:
        threading.Thread(target=self._serve, name="roster", daemon=True).start()

    def in_child(self) -> None:
        """Forget the parent's ends, so that a child's line ends when the parent does."""
        for seat in self._seats.values():
            seat.line.close()
        self._seats = {}
        self._inner.close()

    # --- what is known ------------------------------------------------------------------------------------

    def executing(self) -> int:
        """How many slots run an attempt. Shared memory: the children ask as well."""
        (count,) = _NUMBER.unpack(self._executing[: _NUMBER.size])
        return int(count)

    def free(self) -> int:
        """How many slots are there and hold nothing."""
        with self._mutex:
            return sum(not seat.holds for seat in self._seats.values())

    # --- orders -------------------------------------------------------------------------------------------

    def order(self, order: Order, **params: Any) -> None:
        """Tell every slot, and every slot to come. Safe to call from a signal handler: it takes no lock."""
        self._orders.append({"order": order.value, **params})
        self._wake.wake()

    def _send_orders(self) -> None:
        while self._orders:
            message = self._orders.pop(0)
            self._standing = message
            for seat in list(self._seats.values()):
                with suppress(LineClosed):
                    seat.line.send(message)

    # --- the thread ---------------------------------------------------------------------------------------

    def _serve(self) -> None:
        while True:
            lines = {seat.line.fileno(): seat for seat in self._seats.values()}
            sources: list[Any] = [self._inner, self._wake, *lines]
            readable, _, _ = select.select(sources, [], [])
            self._wake.clear()
            self._send_orders()
            for ready in readable:
                if ready is self._inner:
                    self._admit()
                elif (seat := lines.get(ready)) is not None:
                    self._hear(seat)

    def _admit(self) -> None:
        data, descriptors, _, _ = socket.recv_fds(self._inner, 64, 1)
        if not descriptors:
            return
        seat = Seat(int(data), Line(socket.socket(fileno=descriptors[0])))
        with self._mutex:
            self._seats[seat.pid] = seat
        if self._standing is not None:
            with suppress(LineClosed):
                seat.line.send(self._standing)

    def _hear(self, seat: Seat) -> None:
        try:
            for message in seat.line.read():
                seat.host_pid = message["host_pid"]
                seat.holds = message["holds"] or {}
        except LineClosed:
            self._lose(seat)
        self._count()

    def _lose(self, seat: Seat) -> None:
        with self._mutex:
            self._seats.pop(seat.pid, None)
        seat.line.close()
        if seat.host_pid is not None:
            end_host(seat.host_pid)
        if "job" not in seat.holds:
            return
        lost = Lost(
            pid=seat.pid,
            step=seat.holds["step"],
            job_id=seat.holds["job"],
            token=seat.holds["token"],
            attempt_id=seat.holds.get("attempt", ""),
            claim=seat.holds.get("claim", ""),
        )
        log.warning(
            "SlotLost", extra={"pid": lost.pid, "job": lost.job_id, "token": lost.token, "step": lost.step}
        )
        # On a thread of its own: PostgreSQL may be away, and the next loss must be noticed all the same.
        threading.Thread(target=self._on_lost, args=(lost,), name="lost", daemon=True).start()

    def _count(self) -> None:
        running = sum(seat.holds.get("step") == "run" for seat in self._seats.values())
        self._executing[: _NUMBER.size] = _NUMBER.pack(running)


def end_host(host_pid: int) -> None:
    """The kernel kills a host with its supervisor; what the host had started is ended here."""
    with suppress(ProcessLookupError, PermissionError):
        if os.getsid(host_pid) == host_pid:
            os.kill(host_pid, signal.SIGKILL)
    if not processes.kill_session(host_pid, HOST_END_S):
        log.error("HostNotEnded", extra={"host_pid": host_pid})
