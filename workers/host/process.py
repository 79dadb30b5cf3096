"""The supervisor's end of an attempt host: start it, hand it an attempt, freeze, thaw, end it as a whole."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from workers.host import processes
from workers.host.lines import Line, LineClosed, Message

log = logging.getLogger(__name__)

KILL_WAIT_S: Final = 10.0


class HostFailed(Exception):
    """The host did not start, or did not answer while it was idle."""


@dataclass(slots=True)
class AttemptHost:
    """One host process, which runs one attempt after another. Its process id is its session's id too."""

    process: subprocess.Popen[bytes]
    line: Line
    attempts: int = 0
    is_ready: bool = False
    frozen: bool = field(default=False)

    @classmethod
    def start(cls, environment: Mapping[str, str] | None = None) -> AttemptHost:
        """Start one and do not wait: it loads Django while its supervisor goes on."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "workers.host", str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=2,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
            )
        return cls(process, Line(ours))

    @property
    def pid(self) -> int:
        return self.process.pid

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def wait_ready(self, timeout_s: float) -> None:
        """Until it can run an attempt; HostFailed (and it is ended) if that does not come about."""
        if self.is_ready and self.is_alive():
            return
        try:
            messages = self.line.wait(timeout_s)
        except (LineClosed, TimeoutError) as error:
            self.end()
            raise HostFailed(f"the attempt host did not become ready: {self.ending()}") from error
        if messages[0].get("say") != "ready":
            self.end()
            raise HostFailed("the attempt host did not say that it is ready")
        self.is_ready = True

    def run(self, order: Message) -> None:
        self.attempts += 1
        self.line.send({"do": "run", **order})

    def ask_stop(self, reason: str) -> None:
        with suppress(LineClosed):
            self.line.send({"do": "stop", "reason": reason})

    def freeze(self) -> None:
        """Stop the work of the whole session without asking: its trust in the lease has run out."""
        if not self.frozen:
            self.frozen = True
            self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        if self.frozen:
            self.frozen = False
            self._signal(signal.SIGCONT)

    def terminate(self) -> None:
        """The second step of a stop: a signal, which also reaches a handler that never checks."""
        self._signal(signal.SIGTERM)
        self.thaw()

    def end(self) -> None:
        """Kill it and everything it started, and wait until none of it runs. SIGKILL needs no thaw."""
        with suppress(ProcessLookupError):
            if self.process.poll() is None:
                self.process.kill()
        if not processes.kill_session(self.pid, KILL_WAIT_S):
            log.error("HostNotEnded", extra={"host_pid": self.pid})
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(KILL_WAIT_S)
        if not processes.end_orphans(KILL_WAIT_S):
            log.error("OrphansNotEnded", extra={"host_pid": self.pid})
        self.line.close()

    def ending(self) -> str:
        """How it ended, in words."""
        code = self.process.poll()
        if code is None:
            return "still running"
        if code < 0:
            return f"signal {-code}"
        return f"exit status {code}"

    def _signal(self, number: signal.Signals) -> None:
        """The leader first: it must not start anything while the rest of the session is looked up."""
        with suppress(ProcessLookupError):
            if self.process.poll() is None:
                os.kill(self.pid, number)
        processes.signal_session(self.pid, number)
