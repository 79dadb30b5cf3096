"""`manage.py show JOB`: everything that is known about a job, and where from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandParser
from rich.text import Text

from jobs import queries
from workers import display, reports
from workers.files.names import show_name
from workers.management import drawing
from workers.management.console import Exit, RemoraCommand


class Command(RemoraCommand):
    help = "Show a job: phase, token, authority, attempts, checkpoint, result, live progress, why it waits."
    examples = """\
  manage.py show 01935f3a-7c1e-7d20-9b0a-3c54f2a1e6d7
  manage.py show 01935f3a                    (any beginning that only one job's id has)
  manage.py show 01935f3a --json | jq .attempts
"""

    def add_options(self, parser: CommandParser) -> None:
        parser.add_argument("job", metavar="JOB", help="the job's id, or an unambiguous beginning of it")

    def run(self, options: Mapping[str, Any]) -> Exit:
        report = reports.describe(queries.find_job(options["job"]).id)
        if self.as_json:
            self.answer(report)
            return Exit.OK
        self.show(drawing.facts(overview(report)))
        if report["attempts"]:
            self.show("", Text("attempts", style="bold"), drawing.attempts(report["attempts"]))
        return Exit.OK


def overview(report: Mapping[str, Any]) -> dict[str, Any]:
    """The facts above the table of attempts."""
    checkpoint, result, live, waiting = (
        report["checkpoint"],
        report["result"],
        report["live"],
        report["waiting"],
    )
    kept = ""
    if checkpoint["progress"]:
        validity = "" if checkpoint["valid"] else ", not valid: the next attempt starts from zero"
        kept = f"{display.size(checkpoint['progress'])} by token {checkpoint['token']}{validity}"
    committed = ""
    if result:
        committed = (
            f"token {result['token']}: {result['members']} members, {display.size(result['bytes'])}, "
            f"manifest {result['manifest_digest'][:16]} at {show_name(result['location'])}"
        )
    return {
        "job": report["job"],
        "kind": report["kind"],
        "label": report["label"],
        "queue": f"{report['queue']}, priority {report['priority']}",
        "phase": drawing.phase(report["phase"]),
        "waits": waiting["text"] if waiting else "",
        "why": report["why"],
        "cancel": report["cancel_reason"],
        "token": f"{report['token']} of at most {report['max_attempts']}",
        "authority": report["authority"] or "no attempt",
        "live": f"{display.progress(live)}, {live['age_s']:.1f} s ago" if live else "",
        "checkpoint": kept,
        "result": committed,
        "created": report["created_at"],
        "finished": report["finished_at"],
    }
