"""`manage.py submit KIND`: accept a job durably, or refuse it with the field that is wrong."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from jobs import submission
from jobs.errors import SpecInvalid
from jobs.json_text import read_object
from jobs.values import Actor, ActorKind
from workers import handlers
from workers.management import watching
from workers.management.console import Exit, Refusal, RemoraCommand

ACTOR = Actor(ActorKind.COMMAND, "submit")


class Command(RemoraCommand):
    help = "Accept a job. It is durable when this command says so; the same --key again gives the same job."
    examples = """\
  manage.py submit transfer --source /data/in --target /data/out
  manage.py submit transfer --spec '{"source": "/data/in", "target": "/data/out"}' --wait
  manage.py submit transfer --spec @spec.json --key nightly-2026-11-30 --queue bulk --priority 5
"""

    def add_options(self, parser: CommandParser) -> None:
        parser.add_argument("kind", metavar="KIND", help="what to do, such as transfer")
        parser.add_argument("--spec", metavar="JSON|@FILE", help="what the kind needs; @- reads stdin")
        parser.add_argument("--source", help="the same as the key `source` of the spec")
        parser.add_argument("--target", help="the same as the key `target` of the spec")
        parser.add_argument("--key", help="idempotency key: at most one job is ever accepted under it")
        parser.add_argument("--queue", default="default", help="who takes it (default: %(default)s)")
        parser.add_argument("--priority", type=int, default=0, metavar="N", help="higher goes first")
        parser.add_argument("--label", default="", help="a name for people")
        parser.add_argument("--concurrency-key", default="", help="jobs with the same one share a limit")
        parser.add_argument("--max-attempts", type=int, metavar="N", help="tokens it may use at most")
        parser.add_argument("--secret", action="append", metavar="NAME=-|@FILE", help="not available yet")
        parser.add_argument("--wait", action="store_true", help="watch it; the exit code says how it ended")

    def run(self, options: Mapping[str, Any]) -> Exit:
        if options["secret"]:
            raise Refusal("secret", "secrets are not available yet; the job was not submitted")
        handlers.handler_for(options["kind"])
        accepted = submission.submit(
            options["kind"],
            read_spec(options),
            key=options["key"],
            queue=options["queue"],
            priority=options["priority"],
            label=options["label"],
            concurrency_key=options["concurrency_key"],
            max_attempts=options["max_attempts"],
            actor=ACTOR,
        )
        job_id = accepted.job_id
        if not options["wait"]:
            if self.as_json:
                self.answer({"job": job_id, "created": accepted.created})
            else:
                self.stdout.write(str(job_id))
                if not accepted.created:
                    self.say("The key named this job before; nothing new was accepted.")
            return Exit.OK
        self.say(f"Job {job_id}")
        report = watching.follow(job_id, self.say, quiet=self.as_json)
        if self.as_json:
            self.answer({"job": job_id, "created": accepted.created, **report})
        else:
            self.stdout.write(str(job_id))
        return watching.exit_of(report["phase"])


def read_spec(options: Mapping[str, Any]) -> dict[str, Any]:
    """The spec as an object: from --spec, with --source and --target put in."""
    given = options["spec"]
    spec = {} if given is None else read_object(_text_of(given), "spec")
    for name in ("source", "target"):
        if options[name] is None:
            continue
        if name in spec:
            raise SpecInvalid(name, f"given twice: by --{name} and in --spec")
        spec[name] = options[name]
    return spec


def _text_of(given: str) -> str | bytes:
    if not given.startswith("@"):
        return given
    if given == "@-":
        return sys.stdin.buffer.read()
    try:
        return Path(given[1:]).read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise Refusal("spec", f"{given[1:]!r} cannot be read: {reason}") from None
