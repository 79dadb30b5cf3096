"""`manage.py cancel JOB --reason R`: ask that nothing of this job be published any more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.management.base import CommandParser

from jobs import queries, transitions
from jobs.protocol import Accepted
from jobs.transitions import CancelRequest
from jobs.values import Actor, ActorKind
from workers.management.console import Exit, Refusal, RemoraCommand

ACTOR = Actor(ActorKind.COMMAND, "cancel")


class Command(RemoraCommand):
    help = "Cancel a job. A waiting one is Cancelled at once; a running one is told to stop, then Cancelled."
    examples = """\
  manage.py cancel 01935f3a --reason "wrong source"
"""

    def add_options(self, parser: CommandParser) -> None:
        parser.add_argument("job", metavar="JOB", help="the job's id, or an unambiguous beginning of it")
        parser.add_argument("--reason", required=True, help="why; kept with the job and in the journal")

    def run(self, options: Mapping[str, Any]) -> Exit:
        reason = options["reason"].strip()
        if not reason:
            raise Refusal("reason", "must say why")
        job = queries.find_job(options["job"])
        (decided,) = transitions.request_cancel([CancelRequest(job.id, reason)], actor=ACTOR)
        if not isinstance(decided, Accepted):
            phase = queries.find_job(str(job.id)).phase
            raise Refusal("job", f"cannot be cancelled, it is {phase}", Exit.NO)
        phase = decided.value.job.phase
        if self.as_json:
            self.answer({"job": job.id, "phase": phase})
        else:
            self.stdout.write(f"{job.id} is {phase}")
        return Exit.OK
