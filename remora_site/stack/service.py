"""What the embedded services share: a directory, kept facts, a life as a daemon, a way to fail clearly."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from remora_site.keeping import write_private
from remora_site.stack import launch, ports
from remora_site.stack.account import Account
from remora_site.stack.addresses import Addresses

POLL_S = 0.03
STOP_S = 20.0
START_TRIES = 3
LOG_BYTES_MAX = 20 * 1024 * 1024
LOG_TAIL_LINES = 8


class StackFailure(Exception):
    """A service did not start or stop: which, why, and where its log is."""

    def __init__(self, title: str, why: str, log: Path, tail: str = "") -> None:
        self.title, self.why, self.log, self.tail = title, why, log, tail
        super().__init__(f"{title}: {why}. Its log: {log}" + (f"\n{tail}" if tail else ""))


@dataclass(frozen=True, slots=True)
class Deadline:
    """Until when to wait, and whether somebody has given up meanwhile."""

    at: float
    abandoned: threading.Event

    @classmethod
    def after(cls, seconds: float, abandoned: threading.Event | None = None) -> "Deadline":
        return cls(time.monotonic() + seconds, abandoned or threading.Event())

    def passed(self) -> bool:
        return self.abandoned.is_set() or time.monotonic() > self.at


class Service(ABC):
    """One server. Subclasses say how it is prepared, run, asked and addressed; this says how it lives."""

    name: ClassVar[str]
    title: ClassVar[str]
    variable: ClassVar[str]  # where this is set in the environment, the service is somebody else's
    port_count: ClassVar[int] = 1
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, home: Path, fast: bool) -> None:
        self.directory = home / self.name
        self.log = self.directory / "server.log"
        self.fast = fast
        self._lock = self.directory / "alive.lock"
        self._facts = self.directory / "service.json"

    @abstractmethod
    def prepare(self) -> None:
        """Everything before the first start; does nothing when done, bears having been interrupted."""

    @abstractmethod
    def command(self) -> list[str]: ...

    @abstractmethod
    def answers(self) -> bool:
        """Whether the server answers and knows its own password: anybody could have taken the port."""

    @abstractmethod
    def settle(self, deadline: Deadline) -> None:
        """Everything after each start, such as unsealing; does nothing when done already."""

    @abstractmethod
    def addresses(self) -> Addresses: ...

    @abstractmethod
    def version(self) -> str: ...

    def account(self) -> Account | None:
        return None

    # --- kept facts ---------------------------------------------------------------------------------------
    def facts(self) -> dict[str, Any]:
        try:
            kept: dict[str, Any] = json.loads(self._facts.read_text())
        except FileNotFoundError:
            return {}
        return kept

    def keep(self, **facts: Any) -> None:
        write_private(self._facts, json.dumps(self.facts() | facts))

    @property
    def port(self) -> int:
        return int(self.facts()["ports"][0])

    # --- life ---------------------------------------------------------------------------------------------
    def is_alive(self) -> bool:
        try:
            handle = os.open(self._lock, os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(handle)
        return False

    def start(self, deadline: Deadline) -> bool:
        """Make it answer; whether it had to be started for that."""
        if self.is_alive():
            self._await_answer(deadline)
            self.settle(deadline)
            return False
        make_directory(self.directory)
        self.prepare()
        for tries_left in reversed(range(START_TRIES)):
            chosen = ports.choose(self.port_count, list(self.facts().get("ports", [])))
            self.keep(ports=chosen)
            try:
                self._bring_up(deadline)
            except BaseException:
                ports.forget(chosen)
                somebody_elses = not self.is_alive() and not all(ports.is_free(port) for port in chosen)
                self.stop()
                if not (somebody_elses and tries_left):
                    raise
                self.keep(ports=[])  # taken between our looking and the server's binding it
            else:
                return True
        raise AssertionError("the last try returns or raises")

    def _bring_up(self, deadline: Deadline) -> None:
        try:
            self._launch()
            self._await_answer(deadline)
            self.settle(deadline)
        except (OSError, LookupError, ValueError) as error:
            raise self.fail(f"{type(error).__name__}: {error}") from error

    def stop(self) -> bool:
        """Make sure nothing of it runs; whether something did."""
        if not self.is_alive():
            return False
        pid = int(self.facts()["pid"])
        for step, grace_s in ((self.stop_signal, STOP_S), (signal.SIGKILL, STOP_S)):
            with suppress(ProcessLookupError):
                os.kill(pid, step)
            deadline = Deadline.after(grace_s)
            while self.is_alive():
                if deadline.passed():
                    break
                time.sleep(POLL_S)
            else:
                ports.forget(list(self.facts().get("ports", [])))
                return True
        raise StackFailure(self.title, f"process {pid} does not end", self.log)

    def fail(self, why: str) -> StackFailure:
        return StackFailure(self.title, why, self.log, self._log_tail())

    def run_once(self, command: list[str], directory: Path) -> None:
        """Run a program of the service's to its end, as the service's own user."""
        done = self._order(command, directory, daemon=False)
        if done.returncode != 0:
            raise self.fail(f"{Path(command[0]).name} failed with exit code {done.returncode}")

    def _launch(self) -> None:
        if self.log.exists() and self.log.stat().st_size > LOG_BYTES_MAX:
            self.log.replace(self.log.with_suffix(".log.1"))
        with self.log.open("a") as log:
            log.write(f"--- started by remora at {time.strftime('%Y-%m-%d %H:%M:%S%z')}\n")
        self.log.chmod(0o600)
        done = self._order(self.command(), self.directory, daemon=True)
        if done.returncode != 0:
            raise self.fail(f"not started: {done.stderr.strip() or f'exit code {done.returncode}'}")
        self.keep(pid=int(done.stdout), started_at=time.time())

    def _order(self, command: list[str], directory: Path, daemon: bool) -> subprocess.CompletedProcess[str]:
        account = self.account()
        order = {
            "command": command,
            "directory": str(directory),
            "environment": {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC", "HOME": str(directory)},
            "log": str(self.log),
            "lock": str(self._lock),
            "user": asdict(account) if account else None,
            "daemon": daemon,
        }
        return subprocess.run(
            [sys.executable, "-I", "-S", launch.__file__],
            input=json.dumps(order),
            capture_output=True,
            text=True,
            check=False,
        )

    def _await_answer(self, deadline: Deadline) -> None:
        while not self.answers():
            if not self.is_alive():
                raise self.fail("it ended right after its start")
            if deadline.passed():
                raise self.fail("it runs but does not answer")
            time.sleep(POLL_S)

    def _log_tail(self) -> str:
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return ""
        last_start = max((at for at, line in enumerate(lines) if line.startswith("--- started")), default=-1)
        return "\n".join(f"  {line}" for line in lines[last_start + 1 :][-LOG_TAIL_LINES:])


def make_directory(directory: Path) -> None:
    """A directory that others may pass through but not list; what is private in it is private by itself."""
    if not directory.is_dir():
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o711)
