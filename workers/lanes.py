"""Lanes: a thread of the supervisor for each store, so that a store that does not answer blocks no one.

The supervisor's loop starts at most one call per lane and is woken when it is over. Without lanes, a
connection to PostgreSQL that hangs for half a minute would cost a finished attempt its lease, and a Redis
that hangs would delay the moment at which the work must stop. A lane's thread makes its own connections;
nothing of them is shared.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

Call = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Came:
    """What a call came to: its value, or the error it raised."""

    name: str
    started_at: float
    value: Any = None
    error: BaseException | None = None


class Wake:
    """A pipe that a select loop watches and that any thread may write to."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def fileno(self) -> int:
        return self._read

    def wake(self) -> None:
        with suppress(BlockingIOError):  # full: the loop will wake anyway
            os.write(self._write, b".")

    def clear(self) -> None:
        with suppress(BlockingIOError):
            while os.read(self._read, 4096):
                pass


class Lane:
    """One thread that makes one call after another. `start` only while it is not busy."""

    def __init__(self, name: str, wake: Wake) -> None:
        self._wake = wake
        self._calls: queue.Queue[tuple[str, float, Call]] = queue.Queue()
        self._came: queue.Queue[Came] = queue.Queue()
        self.busy = False
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def start(self, name: str, now: float, call: Call) -> None:
        if self.busy:
            raise RuntimeError("a lane makes one call at a time")
        self.busy = True
        self._calls.put((name, now, call))

    def take(self) -> Came | None:
        """What the last call came to, once."""
        try:
            came = self._came.get_nowait()
        except queue.Empty:
            return None
        self.busy = False
        return came

    def drop(self) -> None:
        """Wait for a call that is under way and forget its answer, so that the next attempt starts with a
        free lane.
        """
        if self.busy:
            self._came.get()
            self.busy = False

    def _work(self) -> None:
        while True:
            name, started_at, call = self._calls.get()
            try:
                came = Came(name, started_at, value=call())
            except BaseException as error:  # handed to the loop, which knows which errors are the world's
                came = Came(name, started_at, error=error)
            self._came.put(came)
            self._wake.wake()
