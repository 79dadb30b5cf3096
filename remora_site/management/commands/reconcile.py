"""`manage.py reconcile`: the duties that beat runs, once, here. In the project, because it spans two apps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.core.management.base import CommandParser
from rich.table import Table
from rich.text import Text

from credentials import config
from workers import reconciler, tasks
from workers.management.console import Exit, Refusal, RemoraCommand

CREDENTIALS: Final = "credentials"
DUTIES: Final = (*reconciler.DUTIES, CREDENTIALS)


class Command(RemoraCommand):
    help = (
        "Run the duties once, in the order in which one's work feeds the next. All of them are idempotent, "
        "and safe beside those that beat runs."
    )
    examples = """\
  manage.py reconcile
  manage.py reconcile --only reaper --dry-run
  manage.py reconcile --only dispatch --only retries --json
"""

    def add_options(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--only", action="append", metavar="DUTY", help=f"may be repeated: {', '.join(DUTIES)}"
        )
        parser.add_argument("--dry-run", action="store_true", help="count what would be done, and do nothing")

    def run(self, options: Mapping[str, Any]) -> Exit:
        wanted = options["only"] or DUTIES
        for name in wanted:
            if name not in DUTIES:
                raise Refusal("only", f"unknown duty {name!r}; known: {', '.join(DUTIES)}")
        reports = [self._duty(name, options["dry_run"]) for name in DUTIES if name in wanted]
        if self.as_json:
            self.answer({"dry_run": options["dry_run"], "duties": reports})
        else:
            self.show(drawn(reports))
        return Exit.UNAVAILABLE if any(report["unavailable"] for report in reports) else Exit.OK

    def _duty(self, name: str, dry_run: bool) -> dict[str, Any]:
        if name == CREDENTIALS:
            return {"name": name, **self._credentials(dry_run)}
        swept = reconciler.DUTIES[name](dry_run=dry_run)
        tasks.send_offers(swept.offers)
        return {
            "name": name,
            "counts": dict(swept.counts),
            "set_aside": list(swept.set_aside),
            "unavailable": swept.unavailable,
        }

    def _credentials(self, dry_run: bool) -> dict[str, Any]:
        if dry_run:
            self.say("credentials: has no dry run; left alone")
            return {"counts": {}, "set_aside": [], "unavailable": ""}
        done = config.reconciler("command").reconcile_credentials().as_dict()
        problems, stopped_by = done.pop("problems"), done.pop("stopped_by")
        return {"counts": done, "set_aside": problems, "unavailable": stopped_by}


def drawn(reports: list[dict[str, Any]]) -> Table:
    table = Table("duty", "done", "set aside", "cut short by", box=None, pad_edge=False)
    for report in reports:
        counts = ", ".join(f"{name} {number}" for name, number in report["counts"].items() if number)
        table.add_row(
            report["name"],
            Text(counts or "nothing to do"),
            Text("; ".join(report["set_aside"])),
            Text(report["unavailable"]),
        )
    return table
