"""Runs management commands for tests: in this process, or as a user would, in one of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from django.core.management import call_command

PROJECT = Path(__file__).resolve().parents[2]
COMMAND_S = 60


@dataclass(frozen=True)
class Said:
    """How a command ended, and what it said where."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one line that stdout must be."""
        assert self.out.endswith("\n"), self.out
        assert self.out.count("\n") == 1, self.out
        assert self.out.isascii()
        return json.loads(self.out)


def run(*arguments: str) -> Said:
    out, err = StringIO(), StringIO()
    code = 0
    try:
        call_command(*arguments, stdout=out, stderr=err, no_color=True)
    except SystemExit as end:
        code = int(end.code or 0)
    return Said(code, out.getvalue(), err.getvalue())


def run_process(environment: Mapping[str, str], *arguments: str, stdin: str = "") -> Said:
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=PROJECT,
        env=dict(environment),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=COMMAND_S,
        check=False,
    )
    return Said(done.returncode, done.stdout, done.stderr)
