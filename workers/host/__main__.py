"""Entry point of an attempt host: `python -m workers.host SOCKET PARENT`. Started by a supervisor, never by
hand.

The main thread runs handlers; one other thread hears the supervisor. When the supervisor is gone, so is
this process: the kernel kills it (parent death signal), and the end of the line does too, for what the
kernel cannot see.
"""

from __future__ import annotations

import os
import queue
import signal
import socket
import sys
import threading
from types import FrameType

from workers.host.lines import Line, LineClosed, Message
from workers.host.processes import die_with_parent, prefer_for_oom


def main(descriptor: int, parent: int) -> None:
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prefer_for_oom()
    line = Line(socket.socket(fileno=descriptor))
    _load_django()
    Host(line).serve()


def _load_django() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "remora_site.settings")
    import django

    django.setup()
    from workers.handlers import kinds

    kinds()


class Host:
    """Serves one supervisor: an attempt at a time, until the line ends."""

    def __init__(self, line: Line) -> None:
        from workers.context import StopOrder

        self._line = line
        self._orders: queue.Queue[Message] = queue.Queue()
        self._stop = StopOrder()
        self._running = False
        self._terminated = False

    def serve(self) -> None:
        from workers.envelope import ExecutionEnvelope
        from workers.host.attempt import run_attempt

        signal.signal(signal.SIGTERM, self._on_term)
        threading.Thread(target=self._hear, name="hear", daemon=True).start()
        self._line.send({"say": "ready", "pid": os.getpid()})
        while True:
            envelope = ExecutionEnvelope.from_message(self._orders.get())
            self._running = True
            ending = run_attempt(envelope, self._line, self._stop)
            self._running = False
            self._line.send(ending)
            self._stop = type(self._stop)()

    def _hear(self) -> None:
        from workers.handlers.api import StopReason

        while True:
            try:
                messages = self._line.read()
            except LineClosed:
                os.killpg(os.getpgid(0), signal.SIGKILL)
                return
            for message in messages:
                if message["do"] == "run":
                    self._orders.put(message)
                else:
                    self._stop.give(StopReason(message["reason"]))

    def _on_term(self, number: int, frame: FrameType | None) -> None:
        """The second step of a stop: raised inside the handler, wherever it is, once."""
        from workers.handlers.api import StopReason, StopRequested

        if not self._running:
            os._exit(0)
        if not self._terminated:
            self._terminated = True
            self._stop.give(StopReason.LEASE_LOST)
            raise StopRequested(self._stop.reason or StopReason.LEASE_LOST)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
