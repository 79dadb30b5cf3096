"""`manage.py result JOB`: the committed result; whether it is still what was committed; a copy of it."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

from jobs import pages, queries
from jobs.models import CommittedResult, Job
from workers import handlers
from workers.handlers.api import ManifestDescriptor
from workers.management import drawing
from workers.management.console import Exit, Refusal, RemoraCommand

PROBLEMS_MAX = 20


class Command(RemoraCommand):
    help = "Show a job's committed result. Without one, the exit code is 1."
    examples = """\
  manage.py result 01935f3a
  manage.py result 01935f3a --verify         (reads every member again)
  manage.py result 01935f3a --fetch ./copy   (the directory must be new or empty)
"""

    def add_options(self, parser: CommandParser) -> None:
        parser.add_argument("job", metavar="JOB", help="the job's id, or an unambiguous beginning of it")
        parser.add_argument("--verify", action="store_true", help="compare every member with the manifest")
        parser.add_argument("--fetch", metavar="DIR", help="copy the members to DIR")

    def run(self, options: Mapping[str, Any]) -> Exit:
        job = queries.find_job(options["job"])
        detail = pages.job_detail(job.id)
        if detail is None or detail.result is None:
            raise Refusal("job", f"has no committed result, it is {job.phase}", Exit.NO)
        answer: dict[str, Any] = {"job": str(job.id), **described(detail.result)}
        if options["fetch"] is not None:
            answer["fetched"] = self._fetch(job, detail.result, options["fetch"])
        if options["verify"]:
            answer["problems"] = self._verify(job, detail.result)
            answer["verified"] = not answer["problems"]
        if self.as_json:
            self.answer(answer)
        else:
            problems = answer.pop("problems", [])
            self.show(drawing.facts(answer))
            for problem in problems:
                self.say(f"{problem['path']}: {problem['what']}")
        return Exit.OK if answer.get("verified", True) else Exit.NO

    def _verify(self, job: Job, result: CommittedResult) -> list[dict[str, str]]:
        found = handlers.handler_for(job.kind).verify(descriptor_of(result))
        return [{"path": problem.path, "what": problem.what} for problem in islice(found, PROBLEMS_MAX)]

    def _fetch(self, job: Job, result: CommittedResult, directory: str) -> str:
        dest = Path(directory).absolute()
        try:
            if dest.exists() and (not dest.is_dir() or any(dest.iterdir())):
                raise Refusal("fetch", f"{str(dest)!r} is there already and not an empty directory")
            with Progress(
                BarColumn(), DownloadColumn(), TransferSpeedColumn(), console=Console(stderr=True)
            ) as bar:
                bar.disable = self.as_json
                task = bar.add_task("", total=result.bytes)
                handlers.handler_for(job.kind).fetch(
                    descriptor_of(result),
                    str(dest),
                    lambda done, total: bar.update(task, completed=done, total=total),
                )
        except (OSError, ValueError) as error:
            raise Refusal("fetch", f"{str(dest)!r} cannot be written: {error}") from error
        return str(dest)


def described(result: CommittedResult) -> dict[str, Any]:
    return {
        "token": result.token,
        "members": result.members,
        "bytes": result.bytes,
        "manifest_digest": result.manifest_digest,
        "manifest_size": result.manifest_size,
        "location": result.location,
        "committed_at": result.committed_at.isoformat(),
    }


def descriptor_of(result: CommittedResult) -> ManifestDescriptor:
    return ManifestDescriptor(
        digest=result.manifest_digest,
        size=result.manifest_size,
        members=result.members,
        bytes=result.bytes,
        location=result.location,
    )
