"""`manage.py audit`: was every step of the history allowed, and does it give what is stored?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from jobs import audit, history, queries
from workers import ledgers
from workers.management import drawing
from workers.management.console import Exit, RemoraCommand


class Command(RemoraCommand):
    help = "Replay the journal against the protocol, and compare what it gives with what is stored."
    examples = """\
  manage.py audit
  manage.py audit --job 01935f3a
  manage.py audit --export history.jsonl
"""

    def add_options(self, parser: CommandParser) -> None:
        parser.add_argument("--job", metavar="JOB", help="only this job's history")
        parser.add_argument(
            "--export", metavar="FILE", help="write the history as JSON lines instead of replaying it"
        )

    def run(self, options: Mapping[str, Any]) -> Exit:
        job_id = queries.find_job(options["job"]).id if options["job"] else None
        if options["export"]:
            return self._export(Path(options["export"]), job_id)
        ledgers.register()
        report = audit.audit(None if job_id is None else [job_id])
        first = report.first
        if self.as_json:
            self.answer(
                {
                    "clean": report.clean,
                    "jobs": report.jobs,
                    "rows": report.rows,
                    "seconds": round(report.seconds, 3),
                    "coverage": dict(sorted(report.coverage.items())),
                    "ledgers": report.ledgers,
                    "broken_count": report.broken_count,
                    "first": None if first is None else asdict(first),
                    "broken": [asdict(broken) for broken in report.broken],
                }
            )
        else:
            self._draw(report)
        return Exit.OK if report.clean else Exit.NO

    def _export(self, path: Path, job_id: Any) -> Exit:
        with path.open("w", encoding="utf-8") as file:
            steps = history.export(file, job_id)
        if self.as_json:
            self.answer({"file": str(path), "steps": steps})
        else:
            self.say(f"{steps} steps written to {path}")
        return Exit.OK

    def _draw(self, report: audit.Report) -> None:
        rate = f"{report.rows / max(report.seconds, 1e-6):,.0f} rows/s"
        verdict = "clean" if report.clean else f"{report.broken_count} broken"
        self.show(
            drawing.facts(
                {
                    "audit": verdict,
                    "jobs": str(report.jobs),
                    "steps": f"{report.rows} ({rate})",
                    **{f"  {action}": str(n) for action, n in sorted(report.coverage.items())},
                    **{f"ledger {name}": f"{n} differences" for name, n in report.ledgers.items()},
                }
            )
        )
        if (first := report.first) is not None:
            where = f"step {first.seq} {first.action}" if first.seq else "stored rows"
            self.say(f"first: {where} of job {first.job}, token {first.token}: {first.what}")
