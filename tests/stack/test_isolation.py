"""Tests side by side share servers and nothing else; a run takes its servers down, or the next one does."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import redis
from django.conf import settings
from django.db import connection

from remora_site import stack
from tests.conftest import delete_own_keys
from tests.stack.conftest import PROJECT
from tests.waiting import wait_until


def test_this_process_has_a_database_and_a_key_prefix_of_its_own(
    process_environment: dict[str, str], coordination_prefix: str, redis_url: str
) -> None:
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    assert coordination_prefix == f"{{remora-{worker or 'main'}}}:"
    assert f"remora-{worker or 'main'}-broker:" == settings.REMORA_BROKER_PREFIX
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_database(), current_setting('fsync')")
        name, fsync = cursor.fetchone()
    assert name == f"test_remora_{worker}" if worker else "test_remora"
    assert fsync == "off"
    assert process_environment["DATABASE_URL"].endswith(f"/{name}")


def test_own_keys_are_removed_and_those_of_others_stay(coordination_prefix: str, redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        for key in (f"{coordination_prefix}a", f"{settings.REMORA_BROKER_PREFIX}b", "somebody-else:c"):
            client.set(key, 1)
        delete_own_keys(redis_url)
        assert client.exists(f"{coordination_prefix}a", f"{settings.REMORA_BROKER_PREFIX}b") == 0
        assert client.delete("somebody-else:c") == 1


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """Where a run inside the run makes its home; nothing is left running in it even if the test fails."""
    yield tmp_path
    for home in tmp_path.glob("remora-test-*"):
        stack.down(home)


@pytest.mark.parametrize(
    "signal_number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda s: s.name
)
def test_a_run_that_is_ended_leaves_no_server_behind(signal_number: signal.Signals, place: Path) -> None:
    """At once where it can still act, else as soon as the next run starts."""
    (place / "test_waits.py").write_text("import signal\ndef test_waits():\n    signal.pause()\n")
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("REMORA_", "PYTEST_"))
    }
    environment |= {"TMPDIR": str(place)}
    # A shell starts what it runs in the background deaf to SIGINT, and every child inherits that.
    command = ["env", "--default-signal=INT", sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["--rootdir", str(PROJECT)]
    command += ["-c", str(PROJECT / "pyproject.toml")]
    with (place / "log").open("w") as log:
        waits = [*command, str(place / "test_waits.py")]
        run = subprocess.Popen(
            waits, cwd=PROJECT, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    wait_until(lambda: list(place.glob("remora-test-*/stack.json")), 60, "the run has its servers")
    servers = [
        process.pid
        for process in psutil.process_iter()
        if any(str(place) in word for word in _command_line(process)) and process.pid != run.pid
    ]
    assert len(servers) >= 3
    run.send_signal(signal_number)
    try:
        run.wait(60)
    finally:  # one that did not hear it is not left to the tests that follow
        run.kill()
        run.wait()

    if signal_number is signal.SIGKILL:
        subprocess.run(
            [*command, "tests/stack/test_isolation.py::nothing"], cwd=PROJECT, env=environment, check=False
        )

    wait_until(lambda: not any(psutil.pid_exists(pid) for pid in servers), 20, "its servers are gone")
    assert not list(place.glob("remora-test-*"))


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return [*process.cmdline(), process.cwd()]
    except psutil.Error:
        return []


def test_runs_of_pure_tests_start_no_server() -> None:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("REMORA_", "PYTEST_"))
    }
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-p",
                "no:cacheprovider",
                "tests/architecture/test_imports.py",
            ],
            cwd=PROJECT,
            env=environment | {"REMORA_TEST_HOME": directory},
            capture_output=True,
            text=True,
            check=False,
        )
        assert " passed" in done.stdout
        assert os.listdir(directory) == []
