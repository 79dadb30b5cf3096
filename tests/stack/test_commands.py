"""`manage.py stack` as a person or a script meets it, also when something is wrong."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from remora_site import stack
from remora_site.stack import launch
from remora_site.stack.account import may_enter
from tests.stack.conftest import PROJECT, Manage, one_line

ELSEWHERE = {"DATABASE_URL": "postgres://elsewhere/x", "VAULT_ADDR": "http://elsewhere"}


def test_status_and_env_are_one_line_of_json_each(manage: Manage) -> None:
    up = one_line(manage("stack", "up", "--json", **ELSEWHERE))
    states = {report["name"]: report["state"] for report in up["services"]}  # type: ignore[attr-defined]
    assert states == {"postgres": "external", "redis": "running", "openbao": "external"}
    status = one_line(manage("stack", "status", "--json", **ELSEWHERE))
    redis_report = next(report for report in status["services"] if report["name"] == "redis")  # type: ignore[attr-defined]
    assert redis_report["version"].startswith("6.")
    assert redis_report["uptime_s"] >= 0
    addresses = one_line(manage("stack", "env", "--json", **ELSEWHERE))
    assert addresses["DATABASE_URL"] == ELSEWHERE["DATABASE_URL"]
    assert str(addresses["REDIS_URL"]).startswith("redis://:")


def test_env_prints_lines_that_a_shell_understands(manage: Manage) -> None:
    manage("stack", "up", **ELSEWHERE)
    lines = manage("stack", "env", **ELSEWHERE).stdout
    shown = subprocess.run(
        ["sh", "-c", f'{lines}\nprintf %s "$REDIS_URL"'], capture_output=True, text=True, check=True
    )
    assert shown.stdout.startswith("redis://:")


def test_without_a_stack_commands_say_what_to_do(manage: Manage) -> None:
    for words in (("migrate",), ("stack", "env")):
        done = manage(*words)
        assert done.returncode != 0
        assert "manage.py stack up" in done.stderr
    assert manage("check").returncode == 0


def test_a_failed_start_says_which_why_and_where_the_log_is_and_leaves_nothing(
    home: Path, manage: Manage
) -> None:
    assert manage("stack", "up").returncode == 0
    assert manage("stack", "down").returncode == 0
    (home / "postgres" / "data" / "PG_VERSION").write_text("nonsense")

    done = manage("stack", "up")

    assert done.returncode == 1
    assert "PostgreSQL: it ended right after its start" in done.stderr
    assert str(home / "postgres" / "server.log") in done.stderr
    assert "PG_VERSION" in done.stderr
    assert {report.state for report in stack.status(home)} == {"stopped"}
    assert stack.read_addresses(home) == stack.Addresses()


def test_a_first_start_that_was_cut_off_is_made_good(home: Path, manage: Manage) -> None:
    (home / "postgres" / "data.new" / "base").mkdir(parents=True)
    (home / "openbao" / "raft" / "raft").mkdir(parents=True)
    (home / "openbao" / "raft" / "vault.db").write_text("half a file")
    assert {report.state for report in stack.up(home)} == {"running"}


def test_a_lost_unseal_key_is_named_and_no_data_is_thrown_away(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgres://elsewhere/x")
    monkeypatch.setenv("REDIS_URL", "redis://elsewhere")
    stack.up(home)
    stack.down(home)
    facts = home / "openbao" / "service.json"
    facts.write_text(facts.read_text().replace("unseal_key", "misplaced_key"))
    with pytest.raises(stack.StackFailure, match="unseal key"):
        stack.up(home)
    assert (home / "openbao" / "raft" / "vault.db").stat().st_size > 0


def python_for_anybody() -> str:
    """An interpreter of our version that other users may run: ours may live under /root."""
    ours = Path(sys.executable).resolve()
    if may_enter(ours.parent):
        return str(ours)
    found = shutil.which(ours.name, path=os.defpath)
    if found is None:
        pytest.skip(f"no {ours.name} here that a plain user may run")
    return found


@pytest.mark.skipif(
    os.geteuid() != 0, reason="a plain user cannot become another; the whole run is the plain case"
)
def test_a_plain_user_starts_and_stops_it(home: Path) -> None:
    own = home / "own"
    own.mkdir()
    os.chown(own, 65_534, 65_534)
    script = (
        "import sys; from pathlib import Path; from remora_site import stack; home = Path(sys.argv[1]);"
        "print({report.state for report in stack.up(home)}); stack.down(home)"
    )
    packages = [path for path in sys.path if path.endswith("-packages")]
    done = subprocess.run(
        [python_for_anybody(), "-c", script, str(own)],
        cwd=PROJECT,
        env={"PYTHONPATH": os.pathsep.join([str(PROJECT), *packages])},
        capture_output=True,
        text=True,
        user=65_534,
        group=65_534,
        extra_groups=[],
        check=False,
    )
    assert done.stdout == "{'running'}\n", done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's own directories are closed to PostgreSQL's user")
def test_root_may_keep_it_where_nobody_else_can_enter(home: Path) -> None:
    private = home / "private"
    private.mkdir(mode=0o700)
    try:
        assert {report.state for report in stack.up(private / "deep")} == {"running"}
        assert (private / "deep" / "postgres" / "data").stat().st_uid != 0
    finally:
        stack.down(private / "deep")
        shutil.rmtree(private)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's own directories are closed to PostgreSQL's user")
@pytest.mark.parametrize("keep_access", [True, False])
def test_a_server_of_another_user_finds_its_programs_below_root(home: Path, keep_access: bool) -> None:
    """A checkout under /root: programs ask access(2) whether they may run their neighbours."""
    private = home / "private"
    private.mkdir(mode=0o700)
    program = private / "program"
    program.touch(0o700)
    question = f"import os; print(os.getuid(), os.access({str(program)!r}, os.X_OK))"
    order = {
        "command": [python_for_anybody(), "-I", "-S", "-c", question],
        "directory": str(home),
        "environment": {},
        "log": str(home / "log"),
        "user": {"uid": 65_534, "gid": 65_534, "keep_access": keep_access},
        "daemon": False,
    }
    subprocess.run(
        [sys.executable, "-I", "-S", launch.__file__], input=json.dumps(order), text=True, check=True
    )
    assert (home / "log").read_text() == f"65534 {keep_access}\n"
