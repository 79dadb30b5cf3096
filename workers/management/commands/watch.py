"""`manage.py watch JOB`: live progress until the job is over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandParser

from jobs import queries
from workers.management import watching
from workers.management.console import Exit, RemoraCommand


class Command(RemoraCommand):
    help = "Watch a job until it is over. The exit code says how it ended; Ctrl-C leaves the job alone."
    examples = """\
  manage.py watch 01935f3a
  manage.py watch 01935f3a --json            (says nothing until the end, then one line)
"""

    def add_options(self, parser: CommandParser) -> None:
        parser.add_argument("job", metavar="JOB", help="the job's id, or an unambiguous beginning of it")

    def run(self, options: Mapping[str, Any]) -> Exit:
        job = queries.find_job(options["job"])
        report = watching.follow(job.id, self.say, quiet=self.as_json)
        if self.as_json:
            self.answer(report)
        else:
            self.stdout.write(watching.headline(report))
        return watching.exit_of(report["phase"])
