"""`manage.py explore` as people and programs use it."""

import json
from io import StringIO

import pytest
from django.core.management import call_command

from jobs.protocol import dispatch
from jobs.protocol.bounds import Bounds
from tests.model.mutants import Mutant, broken

TOO_MANY = Mutant(dispatch.activate_attempt, "reservation=None", "reservation=attempt.worker", Bounds(), "")


def run(*arguments: str) -> tuple[int, str]:
    out = StringIO()
    try:
        call_command("explore", *arguments, stdout=out, stderr=StringIO())
    except SystemExit as ended:
        return int(ended.code or 0), out.getvalue()
    return 0, out.getvalue()


def test_json_is_one_line_with_the_counts() -> None:
    code, text = run("--json", "--faults", "coordination", "--coord-losses", "1")
    assert code == 0
    assert text.count("\n") == 1
    answer = json.loads(text)
    assert (answer["distinct"], answer["depth"], answer["deadlocks"]) == (3_237, 17, 0)
    assert answer["violations"] == []
    assert answer["transitions"]["Enqueue"] == 2
    assert answer["transitions"]["DropLink"] == 0
    assert answer["seconds"] > 0


def test_credential_intents_are_part_of_the_state() -> None:
    code, text = run("--json", "--credential-intents", "1", "--liveness")
    answer = json.loads(text)
    assert (code, answer["distinct"], answer["depth"]) == (0, 12_915, 21)
    assert answer["transitions"]["CommitCredentialVersion"] > 0
    assert "EventuallySystemQuiescent()" in answer["liveness"]["checked"]


def test_a_violation_is_told_step_by_step_and_exits_1() -> None:
    with broken(TOO_MANY):
        code, text = run()
        told_code, told = run("--json")
    assert (code, told_code) == (1, 1)
    assert "PermitSafety is violated" in text
    assert "  4. ActivateAttempt(j1, 1)" in text
    assert "j1.lease.1.state: - -> LeaseLive" in text
    (violation,) = json.loads(told)["violations"]
    assert violation["property"] == "PermitSafety"
    assert violation["trace"][0] == {
        "action": "Enqueue",
        "params": {"job": "j1"},
        "changed": {"j1.coordination.queued": [False, True]},
    }


def test_people_see_every_action_and_the_verdict() -> None:
    code, text = run("--liveness")
    assert code == 0
    assert "1,435 distinct states, depth 16" in text
    assert "Every invariant and action property holds" in text
    assert "EventuallyTerminal(j1)" in text


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (("--jobs", "0"), "jobs"),
        (("--initial-workers", "2"), "initial-workers"),
        (("--faults", "meteor"), "faults"),
        (("--partitions", "-1"), "partitions"),
    ],
)
def test_impossible_bounds_are_refused_by_name(arguments: tuple[str, ...], field: str) -> None:
    code, text = run("--json", *arguments)
    assert code == 2
    assert json.loads(text)["error"]["field"] == field


def test_an_exploration_can_be_cut_short() -> None:
    code, text = run("--json", "--states-max", "100")
    answer = json.loads(text)
    assert code == 0
    assert not answer["complete"]
    assert 100 <= answer["distinct"] < 1_435
