"""A user's whole way on a real fleet: submit and wait, look at the result, check it, copy it, find damage."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tests.operators.shell import PROJECT, Said, run_process
from tests.workers.fleet import Fleet, database_environment


@pytest.fixture(scope="module")
def environment(fleet: Fleet) -> dict[str, str]:
    fleet.worker("one", concurrency=2)
    return os.environ | database_environment() | {"REMORA_PROBE": "1"}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    (root / "in" / "below").mkdir(parents=True)
    (root / "in" / "large").write_bytes(os.urandom(5_000_000))
    (root / "in" / "below" / "sm\nall").write_text("text")
    (root / "in" / "link").symlink_to("large")
    return root


@pytest.fixture(scope="module")
def finished(environment: dict[str, str], tree: Path) -> Said:
    arguments = (
        "submit",
        "transfer",
        "--source",
        f"{tree}/in",
        "--target",
        f"{tree}/out",
        "--wait",
        "--json",
    )
    return run_process(environment, *arguments)


def test_submit_and_wait_answers_once_at_the_end(finished: Said) -> None:
    assert finished.code == 0, finished.err
    report = finished.json
    assert (report["phase"], report["committed"], report["created"]) == ("Succeeded", 1, True)
    assert report["result"]["bytes"] == 5_000_004
    assert report["attempts"][0]["outcome"] == "committed"
    assert report["attempts"][0]["progress"] == 5_000_004


def test_the_result_verifies_and_is_copied(
    environment: dict[str, str], finished: Said, tree: Path, tmp_path: Path
) -> None:
    job = finished.json["job"]
    said = run_process(environment, "result", job, "--verify", "--fetch", f"{tmp_path}/copy", "--json")
    assert (said.code, said.json["verified"]) == (0, True)
    assert (tmp_path / "copy" / "large").read_bytes() == (tree / "in" / "large").read_bytes()
    assert (tmp_path / "copy" / "below" / "sm\nall").read_text() == "text"
    assert os.readlink(tmp_path / "copy" / "link") == "large"


def test_nothing_is_copied_over_what_is_there(
    environment: dict[str, str], finished: Said, tmp_path: Path
) -> None:
    (tmp_path / "mine").write_text("text")
    said = run_process(environment, "result", finished.json["job"], "--fetch", str(tmp_path), "--json")
    assert (said.code, said.json["error"]["field"]) == (2, "fetch")
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine"]


def test_a_failed_job_says_why_and_ends_with_one(environment: dict[str, str], tree: Path) -> None:
    steps = '{"target": "%s/probe", "steps": [{"do": "fail", "how": "permanent"}]}'
    said = run_process(environment, "submit", "probe", "--spec", steps % tree, "--wait", "--json")
    assert said.code == 1, said
    assert (said.json["phase"], said.json["attempts"][0]["outcome"]) == ("Failed", "permanent_failure")
    assert "told to fail for good" in said.json["attempts"][0]["why"]


def test_a_person_sees_a_bar_on_the_terminal_and_the_answer_on_stdout(
    environment: dict[str, str], tree: Path
) -> None:
    steps = '{"target": "%s/probe", "steps": [{"do": "write", "bytes": 1000}, {"do": "sleep", "s": 1}]}'
    command = [sys.executable, "manage.py", "submit", "probe", "--spec", steps % tree, "--wait"]
    ours, theirs = pty.openpty()
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read_terminal, ours)
        done = subprocess.run(
            command,
            cwd=PROJECT,
            env=environment | {"TERM": "xterm", "COLUMNS": "120"},
            stdout=subprocess.PIPE,
            stderr=theirs,
            timeout=60,
            check=False,
        )
        os.close(theirs)
        shown = reading.result()
    os.close(ours)
    assert done.returncode == 0, shown
    assert done.stdout.decode().count("\n") == 1
    assert "Running, token 1" in shown
    assert "Succeeded" in shown
    assert "Traceback" not in shown


def read_terminal(handle: int) -> str:
    """Everything, until the last writer has closed it."""
    shown = b""
    with suppress(OSError):
        while part := os.read(handle, 65_536):
            shown += part
    return shown.decode(errors="replace")


def test_damage_is_found(environment: dict[str, str], finished: Said) -> None:
    """The last of this module: it breaks the result that the others look at."""
    report = finished.json
    large = Path(report["result"]["location"]) / "files" / "large"
    large.chmod(0o600)
    with large.open("r+b") as file:
        file.write(b"damaged")
    said = run_process(environment, "result", report["job"], "--verify", "--json")
    assert (said.code, said.json["verified"]) == (1, False)
    assert "large" in said.json["problems"][0]["path"]
