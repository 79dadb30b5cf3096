"""Runs Remora's own programs (web, beat, workers) as children, for `manage.py up` and `manage.py demo`.

Each program leads a process group of its own: a Ctrl-C at the terminal reaches only the command, which then
stops them in order, and a group can be killed as a whole. The servers are not run from here: they outlive the
command that starts them (remora_site.stack).
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, TracebackType
from typing import Final, Self

from remora_site.stack.addresses import PROJECT

STOP_GRACE_S = 15.0
KILL_S = 5.0
POLL_S = 0.05
RESTARTS_MAX = 5

Say = Callable[[str, str], None]
"""Called with a program's name and one line of its output."""


@dataclass(frozen=True, slots=True)
class Program:
    """What to run, and under which name it is spoken of."""

    name: str
    argv: tuple[str, ...]


def web(address: str, threads: int = 4) -> Program:
    options = (
        "--bind",
        address,
        "--threads",
        str(threads),
        "--graceful-timeout",
        "3",
        "--log-level",
        "warning",
    )
    return Program("web", (sys.executable, "-m", "gunicorn", "remora_site.wsgi:application", *options))


def beat() -> Program:
    return Program("beat", _celery("beat", "--pidfile", ""))


def control_worker(slots: int = 1) -> Program:
    return _worker("control", "control", slots)


def compute_worker(name: str, slots: int, queue: str = "jobs.default") -> Program:
    return _worker(name, queue, slots)


def management(*arguments: str) -> Program:
    return Program(arguments[0], (sys.executable, "manage.py", *arguments))


def _worker(name: str, queue: str, slots: int) -> Program:
    options = ("--queues", queue, "--concurrency", str(slots), "--without-gossip", "--without-mingle")
    return Program(name, _celery("worker", "--hostname", f"{name}@%h", *options))


def _celery(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "celery", "--app", "remora_site", "--quiet", *arguments)


@dataclass(slots=True)
class Running:
    """One program that was started. `group` is also its process id."""

    program: Program
    process: subprocess.Popen[bytes]
    restarts: int = 0
    reader: threading.Thread | None = field(default=None)

    @property
    def group(self) -> int:
        return self.process.pid

    def has_ended(self) -> bool:
        """Asked without reaping it: until it is reaped, no other group can have its number."""
        if self.process.returncode is not None:
            return True
        with suppress(ChildProcessError):
            return os.waitid(os.P_PID, self.group, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        return True

    def ask_to_end(self) -> None:
        """Only the leader is asked: it knows how to end its own children, such as a worker's pool."""
        if not self.has_ended():
            os.kill(self.group, signal.SIGTERM)

    def kill_group(self) -> int:
        """Nothing of its group is left afterwards, and its exit status is known."""
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.group, signal.SIGKILL)
        return self.process.wait(KILL_S)


class Programs:
    """The programs of one command. Leaving the context stops every one of them, whatever happened inside."""

    def __init__(
        self, environment: Mapping[str, str], *, logs: Path | None = None, say: Say | None = None
    ) -> None:
        self._environment = {**os.environ, **environment, "PYTHONUNBUFFERED": "1"}
        self._logs = logs
        self._say = say
        self.running: dict[str, Running] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.stop()

    def start(self, programs: Iterable[Program]) -> None:
        for program in programs:
            with _deferred():
                self.running[program.name] = self._launch(program)

    def ask(self, program: Program) -> tuple[int, str]:
        """Run a program to its end: its exit status, and its stdout. Its stderr is this command's own.

        If this is interrupted, the program is stopped with the others.
        """
        with _deferred():
            process = self._popen(program, subprocess.PIPE, None)
            self.running[program.name] = Running(program, process)
        answer, _ = process.communicate()
        code = process.returncode
        del self.running[program.name]
        return code, answer.decode("utf-8", "backslashreplace")

    def ended(self) -> list[Running]:
        return [running for running in self.running.values() if running.has_ended()]

    def restart(self, running: Running) -> bool:
        """Start an ended program again; False when it has ended too often to be worth it."""
        running.kill_group()
        if running.restarts >= RESTARTS_MAX:
            return False
        with _deferred():
            again = self._launch(running.program)
            again.restarts = running.restarts + 1
            self.running[running.program.name] = again
        return True

    def log_of(self, name: str) -> Path | None:
        return self._logs / f"{name}.log" if self._logs else None

    def stop(self, grace_s: float = STOP_GRACE_S) -> None:
        """Ask all to end, wait, then end what is left; afterwards nothing of their groups exists."""
        with _undisturbed():
            for running in self.running.values():
                running.ask_to_end()
            deadline = time.monotonic() + grace_s
            while time.monotonic() < deadline and not all(run.has_ended() for run in self.running.values()):
                time.sleep(POLL_S)
            for running in self.running.values():
                running.kill_group()
                if running.reader is not None:
                    running.reader.join(KILL_S)
                elif running.process.stdout is not None:
                    running.process.stdout.close()
            self.running.clear()

    def _launch(self, program: Program) -> Running:
        log = self.log_of(program.name)
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("ab") as output:
                return Running(program, self._popen(program, output.fileno(), subprocess.STDOUT))
        process = self._popen(program, subprocess.PIPE, subprocess.STDOUT)
        running = Running(program, process)
        running.reader = threading.Thread(target=self._pump, args=(program.name, process), daemon=True)
        running.reader.start()
        return running

    def _popen(self, program: Program, output: int, errors: int | None) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            program.argv,
            cwd=PROJECT,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )

    def _pump(self, name: str, process: subprocess.Popen[bytes]) -> None:
        if process.stdout is None:
            return
        with process.stdout as lines:
            for line in lines:
                if self._say is not None:
                    self._say(name, line.decode("utf-8", "backslashreplace").rstrip("\r\n"))


ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """Somebody asked the command to end: Ctrl-C, or the SIGTERM of whoever supervises it."""


@contextmanager
def ending_on_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP unwind the command like Ctrl-C does, so that its children are stopped."""

    def unwind(number: int, _: FrameType | None) -> None:
        raise Interrupted(signal.Signals(number).name)

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, unwind) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _deferred() -> Iterator[None]:
    """A signal that comes meanwhile takes effect afterwards: a child not yet listed would be left behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {number: signal.signal(number, lambda got, _: came.append(got)) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])


@contextmanager
def _undisturbed() -> Iterator[None]:
    """A second, impatient Ctrl-C must not leave children behind: stopping takes a bounded time anyway."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def free_port(wanted: int | None = None) -> int:
    """A port of 127.0.0.1 that nobody listens on: the wanted one if it is free, else any."""
    for port in (wanted, 0):
        if port is None:
            continue
        with socket.socket() as candidate:
            candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                candidate.bind(("127.0.0.1", port))
                return int(candidate.getsockname()[1])
    raise OSError("no free port on 127.0.0.1")


def answers(port: int, timeout_s: float = 0.5) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout_s):
        return True
    return False
