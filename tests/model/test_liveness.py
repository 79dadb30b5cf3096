"""The module's liveness properties hold under its fairness, and each of them fails without what it needs.

What fails without which assumption is as TLC finds it for the same module and bounds.
"""

from collections.abc import Sequence

import pytest

from credentials.exploration import FAIRNESS as CREDENTIAL_FAIRNESS
from jobs.protocol.bounds import Bounds
from jobs.protocol.explorer import Exploration
from jobs.protocol.liveness import check, check_liveness, properties
from jobs.protocol.liveness_fairness import FAIRNESS, Rule, without
from tests.model.as_module import explored, named

DISPATCHED, TERMINAL, REAPED = "EventuallyDispatched", "EventuallyTerminal", "EventuallyReaped"
RESOLVED, CLEANED = "EventuallyAuthorizedResolved", "EventuallyNonWinnerStagingCleaned"
QUIESCENT = "EventuallySystemQuiescent"
EVERY_RULE = (*FAIRNESS, *CREDENTIAL_FAIRNESS)
CRASHES = Bounds(workers=2, faults=frozenset({"crash"}))
PARTITIONS = Bounds(faults=frozenset({"coordination", "durable", "target"}), partitions=1)
HOLDS = [
    Bounds(),
    Bounds(credential_intents=1),
    Bounds(max_attempts=2),
    Bounds(faults=frozenset({"coordination"}), coord_losses=1),
    CRASHES,
    PARTITIONS,
]
NEEDED = {
    "Enqueue": {DISPATCHED, TERMINAL, QUIESCENT},
    "ReserveJob": {DISPATCHED, TERMINAL, QUIESCENT},
    "AuthorizeJob": {DISPATCHED, TERMINAL, QUIESCENT},
    "ActivateJob": set(),
    "ExecuteJob": {TERMINAL, REAPED, QUIESCENT},
    "ProcessOutcome": {TERMINAL, REAPED, QUIESCENT},
    "ExpireLease": set(),
    "CooperativeStop": {QUIESCENT},
    "CleanupStage": {CLEANED, QUIESCENT},
    "ReapJob": {TERMINAL, REAPED, RESOLVED, QUIESCENT},
    "FinalizeCancel": {TERMINAL, REAPED, RESOLVED, QUIESCENT},
    "CleanTerminalCoordination": {QUIESCENT},
    "Tick": set(),
    "ReleaseLease": set(),
    "ExpireReservation": set(),
}


def failing(found: Exploration, rules: Sequence[Rule]) -> set[str]:
    return {run.about.action for run in check(found, rules, list(properties(found.world)))}


@pytest.fixture(scope="module")
def smallest() -> Exploration:
    return explored(Bounds())


@pytest.mark.parametrize("bounds", HOLDS, ids=named)
def test_every_liveness_property_holds_under_fairness(bounds: Bounds) -> None:
    assert check_liveness(explored(bounds), CREDENTIAL_FAIRNESS) == []


@pytest.mark.parametrize(("rule", "fails"), NEEDED.items())
def test_without_a_fairness_assumption_fails_what_needs_it(
    smallest: Exploration, rule: str, fails: set[str]
) -> None:
    assert failing(smallest, without(EVERY_RULE, rule)) == fails


def test_every_property_can_fail() -> None:
    assert set().union(*NEEDED.values()) == {DISPATCHED, TERMINAL, REAPED, RESOLVED, CLEANED, QUIESCENT}


def test_without_credential_fairness_an_intent_may_stay_open_for_ever() -> None:
    found = explored(Bounds(credential_intents=1))
    runs = check(found, FAIRNESS, list(properties(found.world)))
    assert [run.about.action for run in runs] == [QUIESCENT]
    assert runs[0].round == []
    assert any(step.label.action == "PrepareCredentialIntent" for step in runs[0].way)


def test_a_dead_workers_lease_ends_by_time_if_nobody_gives_it_back() -> None:
    found = explored(CRASHES)
    assert failing(found, without(EVERY_RULE, "ReleaseLease")) == set()
    assert {TERMINAL, REAPED} <= failing(found, without(EVERY_RULE, "ReleaseLease", "Tick"))


def test_recovery_is_assumed_and_not_proved() -> None:
    """With the only worker cut off for ever nothing is promised, so nothing fails."""
    found = explored(Bounds(faults=frozenset({"coordination"}), partitions=1))
    assert failing(found, without(EVERY_RULE, "RestoreLink")) == set()


def test_weak_fairness_is_not_enough_to_reserve(smallest: Exploration) -> None:
    """Strong rules matter: a reservation that lapses again and again disables what weak fairness asks for."""
    weak = [rule for rule in EVERY_RULE if not rule.strong]
    assert DISPATCHED in failing(smallest, weak)


def test_a_counterexample_is_a_run_that_returns_to_where_its_round_began(smallest: Exploration) -> None:
    runs = check(smallest, without(EVERY_RULE, "ExecuteJob"), list(properties(smallest.world)))
    turning = [run for run in runs if run.round]
    assert turning
    for run in turning:
        changed: dict[str, list[object]] = {}
        for step in run.round:
            for name, (before, after) in step.changed.items():
                values = changed.setdefault(name, [before])
                assert values[-1] == before
                values.append(after)
        assert all(values[0] == values[-1] for values in changed.values())


def test_liveness_is_not_judged_on_half_a_graph() -> None:
    with pytest.raises(ValueError, match="whole graph"):
        check_liveness(explored(Bounds(), states_max=100))
