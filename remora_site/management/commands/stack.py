"""`manage.py stack up|down|status|env`: the embedded PostgreSQL, Redis and OpenBao."""

import json
import shlex
import sys
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from rich.console import Console
from rich.table import Table

from remora_site import stack

PIPE_COLUMNS = 240  # nobody wants a path cut short in a file
VARIABLES = ("DATABASE_URL", "REDIS_URL", "VAULT_ADDR", "VAULT_TOKEN", "VAULT_ROLE_ID", "VAULT_SECRET_ID")


class Command(BaseCommand):
    help = (
        "Runs the embedded PostgreSQL, Redis and OpenBao, but for those whose address is in the environment."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        for name, meaning in (
            ("up", "start what does not run, keep what it holds"),
            ("down", "stop everything that runs, keep what it holds"),
            ("status", "say what runs where"),
            ("env", 'print the addresses as lines for a shell: eval "$(python manage.py stack env)"'),
        ):
            action = actions.add_parser(name, help=meaning)
            action.add_argument("--json", action="store_true", help="one line of JSON on stdout")

    def handle(self, *_: Any, action: str, json: bool, **__: Any) -> None:
        try:
            getattr(self, action)(json)
        except (stack.StackFailure, ModuleNotFoundError) as failure:
            raise CommandError(str(failure)) from failure
        except PermissionError as failure:
            raise CommandError(f"{failure}. Is {settings.REMORA_HOME} another user's?") from failure

    def up(self, as_json: bool) -> None:
        if sys.stderr.isatty() and not as_json:
            with Console(stderr=True).status("Starting PostgreSQL, Redis and OpenBao"):
                reports = stack.up(settings.REMORA_HOME)
        else:
            reports = stack.up(settings.REMORA_HOME)
        self._show(reports, as_json)

    def down(self, as_json: bool) -> None:
        stopped = stack.down(settings.REMORA_HOME)
        if as_json:
            self.stdout.write(json.dumps({"stopped": stopped}))
        else:
            self.stdout.write(f"Stopped {', '.join(stopped)}." if stopped else "Nothing was running.")

    def status(self, as_json: bool) -> None:
        self._show(stack.status(settings.REMORA_HOME), as_json)

    def env(self, as_json: bool) -> None:
        """What a process would use now: the environment first, then what `up` wrote."""
        known = {name: getattr(settings, name) for name in VARIABLES[1:]}
        known = {"DATABASE_URL": settings.REMORA_DATABASE_URL} | known
        if not any(known.values()):
            raise CommandError("Nothing is running: python manage.py stack up")
        if as_json:
            self.stdout.write(json.dumps(known))
            return
        for name, value in known.items():
            if value:
                self.stdout.write(f"export {name}={shlex.quote(value)}")

    def _show(self, reports: list[stack.ServiceReport], as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps({"services": [asdict(report) for report in reports]}))
            return
        table = Table("service", "state", "pid", "port", "version", "up for", box=None, pad_edge=False)
        table.add_column("log", overflow="fold")
        for report in reports:
            uptime = "" if report.uptime_s is None else f"{report.uptime_s} s"
            cells = (report.pid, report.port, report.version, uptime, report.log or report.why)
            table.add_row(report.title, report.state, *("" if cell is None else str(cell) for cell in cells))
        Console(width=None if sys.stdout.isatty() else PIPE_COLUMNS).print(table)
