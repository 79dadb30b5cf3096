"""What every command of Remora shares: `--json`, exit codes, and one clear message for a user's mistake.

The contract with whoever calls a command: stdout holds the answer and nothing else. With `--json` it is
exactly one line, also when the answer is an error: `{"error": {"field": ..., "message": ...}}`. Everything
for people (progress, warnings, the error in words) goes to stderr.
"""

from __future__ import annotations

import json
import logging
import sys
from abc import ABC, abstractmethod
from argparse import RawDescriptionHelpFormatter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from io import StringIO
from typing import Any, ClassVar, NoReturn

from django.core.management.base import BaseCommand, CommandParser
from django.db import InterfaceError, OperationalError, ProgrammingError
from rich.console import Console, RenderableType

from jobs.errors import (
    DurableStoreUnavailable,
    NoSuchJob,
    SpecInvalid,
    SubmissionConflict,
)
from workers.files.names import show_name

PIPE_COLUMNS = 160  # a table in a file is not cut to the width of a terminal that is not there
EXIT_CODES = """\
exit codes:
  0    done; for a command that waits: the job Succeeded
  1    the answer is no: the job Failed or was Cancelled, the result does not verify, it is too late to cancel
  2    the request is wrong: nothing was stored or changed
  3    PostgreSQL or Redis cannot be reached
  130  interrupted; a job that was being watched goes on
"""


class Exit(IntEnum):
    """How a command ends."""

    OK = 0
    NO = 1
    BAD_INPUT = 2
    UNAVAILABLE = 3
    INTERRUPTED = 130


class Refusal(Exception):
    """The command cannot do what was asked; `field` names the argument, `message` says what is allowed."""

    def __init__(self, field: str, message: str, code: Exit = Exit.BAD_INPUT) -> None:
        super().__init__(field, message)
        self.field = field
        self.message = message
        self.code = code

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class RemoraCommand(BaseCommand, ABC):
    """Base of the commands. A subclass says what it takes (`add_options`) and what it does (`run`)."""

    examples: ClassVar[str] = ""
    requires_system_checks: list[str] = []
    as_json: bool = False

    def add_options(self, parser: CommandParser) -> None:
        """Declare the arguments."""

    @abstractmethod
    def run(self, options: Mapping[str, Any]) -> Exit:
        """Do it, and say how it went."""

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        epilog = (f"examples:\n{self.examples}\n" if self.examples else "") + EXIT_CODES
        parser = super().create_parser(
            prog_name, subcommand, epilog=epilog, formatter_class=RawDescriptionHelpFormatter, **kwargs
        )
        usage = parser.error

        def refuse(message: str) -> NoReturn:
            if "--json" in sys.argv:
                self._print_error("arguments", message)
            usage(message)
            raise SystemExit(Exit.BAD_INPUT)

        parser.error = refuse  # type: ignore[method-assign]
        return parser

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="one line of JSON on stdout, nothing else")
        self.add_options(parser)

    def handle(self, *_: Any, **options: Any) -> None:
        self.as_json = bool(options["json"])
        try:
            with _quiet_logs(options["verbosity"]):
                code = self.run(options)
        except KeyboardInterrupt:
            code = Exit.INTERRUPTED
            self.say("Interrupted.")
            if self.as_json:
                self._print_error("interrupt", "interrupted")
        except Exception as error:
            problem = as_refusal(error)
            if problem is None:
                raise
            if self.as_json:
                self._print_error(problem.field, problem.message)
            self.stderr.write(str(problem))
            code = problem.code
        if code:
            raise SystemExit(int(code))

    # --- output ---------------------------------------------------------------------------------------------

    def answer(self, value: Mapping[str, Any]) -> None:
        """The one line of JSON. Whatever the names in it are, the line is ASCII."""
        self.stdout.write(json.dumps(value, default=str))

    def show(self, *parts: RenderableType) -> None:
        """Print for people, on stdout."""
        terminal = self.stdout.isatty()
        drawn = StringIO()
        console = Console(
            file=drawn,
            force_terminal=terminal,
            width=None if terminal else PIPE_COLUMNS,
            highlight=False,
            emoji=False,
        )
        for part in parts:
            console.print(part)
        lines = drawn.getvalue().splitlines()
        self.stdout.write("".join(f"{line.rstrip()}\n" for line in lines), ending="")

    def say(self, text: str) -> None:
        """A remark beside the answer, on stderr."""
        self.stderr.write(text, self.style.NOTICE)

    def _print_error(self, field: str, message: str) -> None:
        self.answer({"error": {"field": field, "message": message}})


@contextmanager
def _quiet_logs(verbosity: int) -> Iterator[None]:
    """A person who gave a command reads its answer; `-v 2` and more show the log as well."""
    root = logging.getLogger()
    before = root.level
    if verbosity < 2:
        root.setLevel(max(before, logging.ERROR))
    try:
        yield
    finally:
        root.setLevel(before)


def as_refusal(error: Exception) -> Refusal | None:
    """The refusal that an error stands for, or None for a defect, which shows its traceback."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, SpecInvalid):
        return Refusal(error.field, error.message)
    if isinstance(error, SubmissionConflict):
        return Refusal("key", str(error))
    if isinstance(error, NoSuchJob):
        shown = show_name(str(error.job_id))
        return Refusal("job", f"{shown!r} is neither the id of a job nor the beginning of just one")
    return _as_unavailable(error)


def _as_unavailable(error: Exception) -> Refusal | None:
    if isinstance(error, DurableStoreUnavailable | OperationalError | InterfaceError):
        said = str(error.__cause__ or error).strip().splitlines() or [""]
        advice = "" if "stack up" in said[0] else " Run `python manage.py stack up`, or see to DATABASE_URL."
        return Refusal("database", f"PostgreSQL does not answer: {said[0]}{advice}", Exit.UNAVAILABLE)
    if isinstance(error, ProgrammingError) and "does not exist" in str(error):
        return Refusal(
            "database", "its tables are not there: run `python manage.py migrate`", Exit.UNAVAILABLE
        )
    return None
