"""`manage.py demo`: a transfer whose worker is killed half-way, and the account of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser
from rich.console import Console
from rich.table import Table
from rich.text import Text

from remora_site import stack
from remora_site.demo.stage import DemoFailed, Stage
from workers.management.console import Exit, Refusal, RemoraCommand


class Command(RemoraCommand):
    help = (
        "Bring up a whole Remora in a directory of its own, transfer real files, kill the worker half-way, "
        "show that the result is published once by the attempt that holds authority, and stop everything. "
        "Exit 0 only if all of that held."
    )
    examples = """\
  manage.py demo
  manage.py demo --home /tmp/remora-demo --keep
  manage.py demo --json 2>/dev/null | jq .checks
"""

    def add_options(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--home", metavar="DIR", help="where (default: demo/ below REMORA_HOME); it is emptied"
        )
        parser.add_argument(
            "--keep", action="store_true", help="leave data, source and result there afterwards"
        )

    def run(self, options: Mapping[str, Any]) -> Exit:
        home = Path(options["home"]).resolve() if options["home"] else settings.REMORA_HOME / "demo"
        stage = Stage(home, Console(stderr=True, highlight=False), keep=options["keep"])
        try:
            report = stage.perform()
        except (DemoFailed, stack.StackFailure) as failure:
            raise Refusal("demo", str(failure), Exit.NO) from failure
        if self.as_json:
            self.answer(report)
        else:
            self.show(*account(report))
        return Exit.OK if report["held"] else Exit.NO


def account(report: Mapping[str, Any]) -> list[Any]:
    """What came of it, for people."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for check in report["checks"]:
        mark = Text("held", "bold green") if check["held"] else Text("BROKEN", "bold red")
        table.add_row(mark, Text(check["name"]), Text(check["detail"], "dim"))
    spent = ", ".join(f"{name} {seconds} s" for name, seconds in report["timings_s"].items())
    verdict = (
        Text("All of it held.", "bold green") if report["held"] else Text("Not all of it held.", "bold red")
    )
    return ["", table, "", verdict, Text(spent, "dim")]
