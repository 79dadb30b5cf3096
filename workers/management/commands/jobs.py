"""`manage.py jobs`: the newest jobs, narrowed by phase, kind or queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandParser
from rich.table import Table
from rich.text import Text

from jobs.pages import JobFilter
from jobs.protocol.states import Phase
from jobs.strict_json import check_text
from workers import display, reports
from workers.files.names import show_name
from workers.management import drawing
from workers.management.console import Exit, Refusal, RemoraCommand

ROWS_MAX = 1000


class Command(RemoraCommand):
    help = "List jobs, newest first."
    examples = """\
  manage.py jobs
  manage.py jobs --phase Running --queue default
  manage.py jobs --phase RetryWait --limit 100 --json | jq -r '.jobs[].job'
"""

    def add_options(self, parser: CommandParser) -> None:
        parser.add_argument("--phase", default="", help=f"one of {', '.join(Phase)}")
        parser.add_argument("--kind", default="")
        parser.add_argument("--queue", default="")
        parser.add_argument("--limit", type=int, default=20, metavar="N", help="rows (default: %(default)s)")

    def run(self, options: Mapping[str, Any]) -> Exit:
        if not 1 <= options["limit"] <= ROWS_MAX:
            raise Refusal("limit", f"must be from 1 to {ROWS_MAX}")
        kind, queue = (check_text(options[name], name) for name in ("kind", "queue"))
        wanted = JobFilter(phase_named(options["phase"]), kind, queue)
        rows, more = reports.list_jobs(wanted, rows_max=options["limit"])
        if self.as_json:
            self.answer({"jobs": rows, "more": more})
            return Exit.OK
        table = Table(
            "job", "kind", "queue", "phase", "token", "age", "progress", "waits", box=None, pad_edge=False
        )
        for row in rows:
            table.add_row(
                row["job"],
                row["kind"],
                row["queue"],
                drawing.phase(row["phase"]),
                str(row["token"]),
                display.duration(row["age_s"]),
                display.progress(row["live"]),
                Text(show_name(row["waiting"]["text"]) if row["waiting"] else ""),
            )
        self.show(table)
        if more:
            self.say("There are more: --limit")
        return Exit.OK


def phase_named(text: str) -> str:
    """The phase, however its letters are written; an empty text is no phase."""
    if not text:
        return ""
    known = {phase.lower(): str(phase) for phase in Phase}
    if text.lower() not in known:
        raise Refusal("phase", f"unknown phase {text!r}; known: {', '.join(Phase)}")
    return known[text.lower()]
