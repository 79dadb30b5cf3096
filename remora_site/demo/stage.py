"""The outside of the demo: a home of its own, servers, programs, and nothing left at the end of it."""

import fcntl
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console

from remora_site import processes, stack
from remora_site.processes import Program, Programs

MARKER = "made-by-demo"  # only a directory that has it is ever emptied
LOG_TAIL_LINES = 20
LEFT_S = 10.0
POLL_S = 0.1
SLOTS = 2
# A worker that is silent for so long is declared down, and only then is its stage removed. By default the
# demo would wait a minute and a half for that.
IMPATIENT = {"REMORA_PRESENCE_MS": "15000"}
SERVERS = ("postgres", "redis-server", "bao")
# The demo never touches somebody else's servers, even where the environment points at some.
ADDRESSES = ("DATABASE_URL", "REDIS_URL", "VAULT_ADDR", "VAULT_TOKEN", "REMORA_REDIS_PREFIX")


class DemoFailed(Exception):
    """The demo could not be carried through: what failed, and where to look."""


@dataclass(slots=True)
class Stage:
    """One performance. `tell` shows a step to people."""

    home: Path
    console: Console
    keep: bool = False
    timings_s: dict[str, float] = field(default_factory=dict)

    def perform(self) -> dict[str, Any]:
        """Set up, play, take down. The report, with what is left of processes."""
        for name in ADDRESSES:
            os.environ.pop(name, None)
        os.environ["REMORA_HOME"] = str(self.home)
        began = time.monotonic()
        with self._alone(), processes.ending_on_signals():
            with self._timed("reset"):
                remove_home(self.home)
            try:
                report = self._play()
            finally:
                with self._timed("servers down"):
                    stack.down(self.home)
            report["checks"].append(self._nothing_is_left())
            report["held"] = all(check["held"] for check in report["checks"])
            if report["held"] and not self.keep:
                with self._timed("remove"):
                    remove_home(self.home, but=("logs",))
        report["timings_s"] = self.timings_s | {"total": round(time.monotonic() - began, 1)}
        return report

    def _play(self) -> dict[str, Any]:
        self.home.mkdir(parents=True, exist_ok=True, mode=0o711)
        (self.home / MARKER).touch()
        port = processes.free_port()
        environment = {"REMORA_HOME": str(self.home), "REMORA_LOCAL_LIMIT": str(SLOTS)} | IMPATIENT
        with Programs(environment, logs=self.home / "logs") as programs:
            facts = self._set_up(programs)
            programs.start(fleet(port))
            self.tell(f"Admin at http://127.0.0.1:{port}/admin/ while the demo runs")
            with self._timed("play"):
                report = self._ask(programs, inside(self.home, facts))
            with self._timed("stop"):
                programs.stop()
            return report

    def _set_up(self, programs: Programs) -> str:
        making = Program(
            "source", (sys.executable, "-m", "remora_site.demo.source", str(self.home / "source"))
        )
        programs.start([making])
        self.tell("Starting PostgreSQL, Redis and OpenBao; copying files that will be transferred")
        with self._timed("servers"):
            stack.up(self.home)
        with self._timed("migrate"):
            self._run(programs, processes.management("migrate", "--verbosity", "0"))
        with self._timed("source"):
            return self._await(programs, making)

    def _await(self, programs: Programs, program: Program) -> str:
        running = programs.running[program.name]
        while not running.has_ended():
            time.sleep(POLL_S)
        if running.kill_group() != 0:
            raise self._failed(programs, program)
        del programs.running[program.name]
        return _last_line(programs.log_of(program.name))

    def _run(self, programs: Programs, program: Program) -> None:
        programs.start([program])
        self._await(programs, program)

    def _ask(self, programs: Programs, program: Program) -> dict[str, Any]:
        code, answer = programs.ask(program)
        if code != 0 or not answer:
            raise DemoFailed(f"The play ended with {code}. Logs of all programs: {self.home / 'logs'}")
        report: dict[str, Any] = json.loads(answer)
        return report

    def _failed(self, programs: Programs, program: Program) -> DemoFailed:
        log = programs.log_of(program.name)
        lines = log.read_text(errors="backslashreplace").splitlines() if log else []
        return DemoFailed("\n".join([f"`{program.name}` failed. Its log: {log}", *lines[-LOG_TAIL_LINES:]]))

    def tell(self, text: str) -> None:
        self.console.print(text, markup=False)

    def _nothing_is_left(self) -> dict[str, Any]:
        """A program of the demo has this home in its environment, a server in its command line."""
        deadline = time.monotonic() + LEFT_S
        while (left := processes_of(self.home)) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        return {"name": "no process is left", "held": not left, "detail": ", ".join(left) or "none"}

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self.timings_s[name] = round(time.monotonic() - began, 1)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        self.home.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.home.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoFailed(f"Another demo is running in {self.home}.") from None
        else:
            yield
        finally:
            os.close(lock)


def fleet(port: int) -> Sequence[Program]:
    compute = [processes.compute_worker(f"compute-{number}", SLOTS) for number in (1, 2)]
    return [processes.web(f"127.0.0.1:{port}"), processes.beat(), processes.control_worker(), *compute]


def inside(home: Path, source_facts: str) -> Program:
    play = (sys.executable, "-m", "remora_site.demo.play", str(home), source_facts)
    return Program("play", play)


def remove_home(home: Path, but: Sequence[str] = ()) -> None:
    """Servers that an earlier, killed demo left are stopped before their data goes."""
    if not home.is_dir():
        return
    entries = list(home.iterdir())
    if entries and not (home / MARKER).exists():
        raise DemoFailed(f"{home} is not empty and not from a demo: it is left alone. Name another --home.")
    stack.down(home)
    for entry in entries:
        if entry.name in (MARKER, *but):
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def processes_of(home: Path) -> list[str]:
    """Servers and programs of that home: all but this process and those that it runs in."""
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found = []
    for process in psutil.process_iter(["pid", "name", "cmdline", "status"]):
        if process.pid in own or process.info["status"] == psutil.STATUS_ZOMBIE:
            continue
        try:
            words = process.info["cmdline"] or [""]
            server = Path(words[0]).name in SERVERS and any(str(home) in word for word in words)
            if server or process.environ().get("REMORA_HOME") == str(home):
                found.append(f"{process.info['name']} ({process.pid})")
        except psutil.Error:
            continue
    return found


def _last_line(log: Path | None) -> str:
    lines = log.read_text(errors="backslashreplace").splitlines() if log else []
    return lines[-1] if lines else ""
