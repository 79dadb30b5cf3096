"""`manage.py up`: all of Remora in the foreground, until Ctrl-C."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser
from rich.console import Console
from rich.text import Text

from remora_site import processes, stack
from remora_site.processes import Program, Programs
from workers.management.console import Exit, Refusal, RemoraCommand

PORT = 8000
POLL_S = 0.3
WEB_S = 30.0
NAME_COLUMNS = 9
STYLES = {"web": "cyan", "beat": "magenta", "control": "yellow", "compute-1": "green", "compute-2": "blue"}


class Command(RemoraCommand):
    help = "Run the servers, the web admin, beat and the workers in the foreground; Ctrl-C stops them all."
    examples = """\
  manage.py up
  manage.py up --port 8080 --workers 4 --slots 2
"""

    def add_options(self, parser: CommandParser) -> None:
        parser.add_argument("--port", type=int, help=f"of the web admin (default: {PORT}, or any free one)")
        parser.add_argument("--workers", type=int, default=2, metavar="N", help="compute workers")
        parser.add_argument("--slots", type=int, default=2, metavar="N", help="jobs at once per worker")

    def run(self, options: Mapping[str, Any]) -> Exit:
        for name in ("workers", "slots"):
            if not 1 <= options[name] <= 64:
                raise Refusal(name, "must be from 1 to 64")
        port = self._port(options["port"])
        environment = {"REMORA_HOME": str(settings.REMORA_HOME), "REMORA_LOCAL_LIMIT": str(options["slots"])}
        out = Console(stderr=True, highlight=False)
        with processes.ending_on_signals():
            try:
                self._start_servers(out)
                with Programs(
                    environment, say=lambda name, line: out.print(prefixed(name, line), soft_wrap=True)
                ) as programs:
                    login = self._prepare(programs)
                    programs.start(fleet(port, options["workers"], options["slots"]))
                    self._announce(programs, port, login)
                    self._stay(programs, out)
            except KeyboardInterrupt:
                out.print("Stopped the programs; stopping the servers.")
            finally:
                stack.down(settings.REMORA_HOME)
        return Exit.OK

    def _port(self, wanted: int | None) -> int:
        port = processes.free_port(wanted or PORT)
        if wanted is not None and port != wanted:
            raise Refusal("port", f"{wanted} is taken by another process")
        return port

    def _start_servers(self, out: Console) -> None:
        out.print("Starting PostgreSQL, Redis and OpenBao (those whose address is not in the environment)")
        try:
            stack.up(settings.REMORA_HOME)
        except stack.StackFailure as failure:
            raise Refusal("stack", str(failure), Exit.UNAVAILABLE) from failure

    def _prepare(self, programs: Programs) -> dict[str, str]:
        self._must_succeed(programs, processes.management("migrate", "--verbosity", "0"))
        answer = self._must_succeed(programs, Program("login", (sys.executable, "-m", "remora_site.logins")))
        login: dict[str, str] = json.loads(answer)
        return login

    def _must_succeed(self, programs: Programs, program: Program) -> str:
        code, answer = programs.ask(program)
        if code != 0:
            raise Refusal(program.name, f"ended with {code}; what it said is above", Exit.UNAVAILABLE)
        return answer

    def _announce(self, programs: Programs, port: int, login: Mapping[str, str]) -> None:
        deadline = time.monotonic() + WEB_S
        while not processes.answers(port) and time.monotonic() < deadline and not programs.ended():
            time.sleep(POLL_S)
        address = f"http://127.0.0.1:{port}/admin/"
        if self.as_json:
            self.answer({"address": address, **login})
        else:
            password = login["password"] or "(as somebody changed it)"
            self.stdout.write(
                f"\n  Admin:    {address}\n  User:     {login['user']}\n  Password: {password}\n\n"
            )
        self.stdout.flush()

    def _stay(self, programs: Programs, out: Console) -> None:
        """Until interrupted. A program that ended is started again, a bounded number of times."""
        while programs.running:
            for running in programs.ended():
                again = programs.restart(running)
                out.print(
                    prefixed(running.program.name, "ended; " + ("started again" if again else "given up"))
                )
                if not again:
                    del programs.running[running.program.name]
            time.sleep(POLL_S)


def fleet(port: int, workers: int, slots: int) -> list[Program]:
    compute = [processes.compute_worker(f"compute-{number + 1}", slots) for number in range(workers)]
    return [processes.web(f"127.0.0.1:{port}"), processes.beat(), processes.control_worker(), *compute]


def prefixed(name: str, line: str) -> Text:
    return Text(f"{name:<{NAME_COLUMNS}} ", style=STYLES.get(name, "")) + Text(
        readable(line), style="default"
    )


def readable(line: str) -> str:
    """A line of our own log as a person reads it; any other line as it is."""
    try:
        record = json.loads(line)
        shown = f"{record.pop('at')[11:19]} {record.pop('level')} {record.pop('message')}"
    except (ValueError, AttributeError, KeyError, TypeError):
        return line
    traceback = record.pop("traceback", "")
    facts = " ".join(f"{key}={value}" for key, value in record.items() if key not in ("logger", "pid"))
    return f"{shown} {facts}".rstrip() + (f"\n{traceback}" if traceback else "")
