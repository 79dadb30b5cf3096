"""What runs Remora's programs stops all of them, however it ends."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from remora_site import processes
from remora_site.demo.stage import MARKER, DemoFailed, processes_of, remove_home
from remora_site.processes import Program, Programs
from tests.operators.shell import PROJECT
from tests.waiting import wait_until

DEAF_WITH_A_CHILD = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""


def python(name: str, text: str) -> Program:
    return Program(name, (sys.executable, "-c", text))


def alive(pid: int) -> bool:
    return bool(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)


def test_a_program_that_will_not_stop_is_killed_with_its_children(tmp_path: Path) -> None:
    programs = Programs({}, logs=tmp_path)
    programs.start([python("deaf", DEAF_WITH_A_CHILD)])
    log = tmp_path / "deaf.log"
    child = int(wait_until(lambda: log.exists() and log.read_text().strip(), 10, "it has a child"))
    leader = programs.running["deaf"].group
    programs.stop(grace_s=0.2)
    assert not alive(leader)
    wait_until(lambda: not alive(child), 5, "the child is gone as well")


class Hasty(Programs):
    """Asked to end between the birth of a child and its name on the list."""

    born = 0

    def _popen(self, program: Program, output: int, errors: int | None) -> subprocess.Popen[bytes]:
        child = super()._popen(program, output, errors)
        self.born = child.pid
        signal.raise_signal(signal.SIGTERM)
        return child


def test_a_child_that_is_just_being_started_is_not_left_behind(tmp_path: Path) -> None:
    sleeper = python("sleeper", "import time; time.sleep(600)")
    with processes.ending_on_signals():
        with pytest.raises(processes.Interrupted), Hasty({}, logs=tmp_path) as asked:
            asked.ask(sleeper)
        with pytest.raises(processes.Interrupted), Hasty({}, logs=tmp_path) as started:
            started.start([sleeper])
    assert not alive(asked.born)
    assert not alive(started.born)


def test_an_error_inside_stops_everything(tmp_path: Path) -> None:
    programs = Programs({}, logs=tmp_path)

    def fail_while_it_runs() -> None:
        with programs:
            programs.start([python("sleeper", "import time; time.sleep(600)")])
            leaders.append(programs.running["sleeper"].group)
            raise ZeroDivisionError

    leaders: list[int] = []
    with pytest.raises(ZeroDivisionError):
        fail_while_it_runs()
    assert not alive(leaders[0])


def test_a_program_that_ends_is_started_again_a_bounded_number_of_times(tmp_path: Path) -> None:
    with Programs({}, logs=tmp_path) as programs:
        programs.start([python("short", "pass")])
        starts = 1
        while True:
            (ended,) = wait_until(programs.ended, 10, "it has ended")
            if not programs.restart(ended):
                break
            starts += 1
        assert starts == 1 + processes.RESTARTS_MAX


def test_lines_are_passed_on_with_the_programs_name() -> None:
    heard: list[tuple[str, str]] = []
    with Programs({"NAME": "ü"}, say=lambda name, line: heard.append((name, line))) as programs:
        programs.start([python("talker", "import os; print(os.environ['NAME']); print('two')")])
        wait_until(lambda: len(heard) == 2, 10, "both lines are heard")
    assert heard == [("talker", "ü"), ("talker", "two")]


def test_a_question_is_answered_with_exit_status_and_stdout() -> None:
    with Programs({}) as programs:
        assert programs.ask(python("asked", "print('yes'); raise SystemExit(3)")) == (3, "yes\n")
        assert not programs.running


def test_a_port_that_is_taken_is_not_given() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert processes.answers(port)
        assert processes.free_port(port) != port


def test_the_demo_empties_no_directory_that_is_not_its_own(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("text")
    with pytest.raises(DemoFailed, match="left alone"):
        remove_home(tmp_path)
    assert (tmp_path / "precious").exists()
    (tmp_path / MARKER).touch()
    remove_home(tmp_path)
    assert not (tmp_path / "precious").exists()


@pytest.mark.slow
def test_an_interrupted_demo_leaves_no_process(tmp_path: Path) -> None:
    home = tmp_path / "demo"
    demo = subprocess.Popen(
        [sys.executable, "manage.py", "demo", "--home", str(home), "--json"],
        cwd=PROJECT,
        env={**os.environ, "REMORA_HOME": str(tmp_path / "home")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    # The fleet is up as soon as a worker has its log; the servers have been up before it.
    wait_until((home / "logs" / "compute-1.log").exists, 90, "the fleet has been started")
    demo.send_signal(signal.SIGTERM)
    out, err = demo.communicate(timeout=60)
    assert demo.returncode == 130, err.decode()
    assert out.decode().count("\n") == 1
    assert b"Traceback" not in err
    wait_until(lambda: not processes_of(home), 10, "nothing of the demo is left")
