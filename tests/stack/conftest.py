"""Stacks of their own for tests that start, stop and hurt servers: never the one that the run itself uses."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from remora_site import stack

PROJECT = Path(__file__).resolve().parents[2]
VARIABLES = ("DATABASE_URL", "REDIS_URL", "VAULT_ADDR", "VAULT_TOKEN")

Manage = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def home() -> Iterator[Path]:
    """A home for one stack, taken down and removed afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="remora-stack-"))
    directory.chmod(0o711)
    yield directory
    stack.down(directory)
    shutil.rmtree(directory)


@pytest.fixture
def manage(home: Path) -> Manage:
    """`manage.py` as a person would run it, with this home."""

    def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
        environment |= {"REMORA_HOME": str(home)} | variables
        command = [sys.executable, "manage.py", *words]
        return subprocess.run(
            command, cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=120, check=False
        )

    return run


def pids(reports: list[stack.ServiceReport]) -> dict[str, int | None]:
    return {report.name: report.pid for report in reports}


def one_line(done: subprocess.CompletedProcess[str]) -> dict[str, object]:
    """The answer of a command called with --json, which is exactly one line."""
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 1
    answer: dict[str, object] = json.loads(done.stdout)
    return answer
