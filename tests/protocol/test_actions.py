"""What holds of the pure functions on the slices that the protocol can reach."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from jobs.protocol import outcomes
from jobs.protocol.bounds import Bounds
from jobs.protocol.decision import ACTIONS, Accepted, Refusal
from jobs.protocol.explorer import explore
from jobs.protocol.explorer_steps import OF_TOKEN, OF_TOKEN_AND_ITS_WORKER, OF_TOKEN_AND_LIMITS
from jobs.protocol.records import JobView, Usage, WorkerRecord
from jobs.protocol.states import LinkState, OutcomeRequest, Service, WorkerState

BOUNDS = Bounds(max_attempts=2, local_limit=2, faults=frozenset({"coordination"}), coord_losses=1)
SLICES_MAX = 1_500
LIMITS = BOUNDS.limits
UP = WorkerRecord("w1")
DOWN = WorkerRecord("w1", WorkerState.DOWN)
CUT_OFF = WorkerRecord("w1", links=(LinkState.DOWN,) * 3)
NEEDS = {
    "Reserve": {Service.COORDINATION},
    "AuthorizeAttempt": {Service.DURABLE},
    "ActivateAttempt": {Service.COORDINATION},
    "RenewLease": {Service.COORDINATION},
    "RegrantLease": {Service.COORDINATION, Service.DURABLE},
    "AdvanceAttempt": {Service.TARGET},
    "PersistCheckpoint": {Service.DURABLE},
    "ReportProgress": {Service.COORDINATION},
    "SendOutcome": {Service.DURABLE},
}


@pytest.fixture(scope="module")
def slices() -> list[JobView]:
    """Reachable slices at these bounds, spread over all depths: two attempts, zombies, lost leases."""
    found = explore(BOUNDS, states_max=30_000).world.slices.views
    return found[:: len(found) // SLICES_MAX]


def calls_for_worker(view: JobView, worker: WorkerRecord) -> Iterator[tuple[str, int, Any]]:
    """What a worker may ask for on this slice: the action, its token (0 for none), the decision."""
    usage = Usage(0, 0)
    yield "Reserve", 0, ACTIONS["Reserve"].function(view, worker, usage, LIMITS)
    yield "AuthorizeAttempt", 0, ACTIONS["AuthorizeAttempt"].function(view, worker, LIMITS)
    for attempt in view.attempts:
        token = attempt.token
        yield from calls_for_attempt(view, token, worker)


def calls_for_attempt(view: JobView, token: int, worker: WorkerRecord) -> Iterator[tuple[str, int, Any]]:
    for name in OF_TOKEN:
        yield name, token, ACTIONS[name].function(view, token)
    for name in OF_TOKEN_AND_LIMITS:
        yield name, token, ACTIONS[name].function(view, token, LIMITS)
    for name in OF_TOKEN_AND_ITS_WORKER:
        yield name, token, ACTIONS[name].function(view, token, worker)
    regrant = ACTIONS["RegrantLease"].function
    yield "RegrantLease", token, regrant(view, token, worker, Usage(0, 0), LIMITS)
    yield "AdvanceAttempt", token, ACTIONS["AdvanceAttempt"].function(view, token, 1, worker, LIMITS)
    for outcome in OutcomeRequest:
        yield "SendOutcome", token, ACTIONS["SendOutcome"].function(view, token, outcome, worker)


def test_an_action_on_an_attempt_decides_the_same_when_only_that_attempt_is_loaded(
    slices: list[JobView],
) -> None:
    """A store loads the attempts that an action names and no others."""
    for view in slices:
        for attempt in view.attempts:
            alone = replace(view, attempts=(attempt,))
            for (name, _, whole), (_, _, partial) in zip(
                calls_for_attempt(view, attempt.token, UP),
                calls_for_attempt(alone, attempt.token, UP),
                strict=True,
            ):
                if not isinstance(whole, Accepted):
                    assert partial == whole, name
                    continue
                others = [other for other in view.attempts if other.token != attempt.token]
                assert partial.value.job == whole.value.job, name
                assert partial.value.coordination == whole.value.coordination, name
                assert partial.value.attempt(attempt.token) == whole.value.attempt(attempt.token), name
                assert [other for other in whole.value.attempts if other.token != attempt.token] == others


def test_an_attempt_that_does_not_exist_is_refused_everything(slices: list[JobView]) -> None:
    for view in slices:
        absent = view.job.current_token + 1
        for name, _, decision in calls_for_attempt(view, absent, UP):
            assert decision.refused, name


def test_nothing_is_granted_to_a_worker_that_is_down_or_cut_off(slices: list[JobView]) -> None:
    for view in slices:
        for worker in (DOWN, CUT_OFF):
            for name, _, decision in calls_for_worker(view, worker):
                assert name not in NEEDS or decision.refused, name


@pytest.mark.parametrize(("action", "services"), NEEDS.items())
def test_an_action_needs_just_the_links_to_the_stores_it_uses(
    slices: list[JobView], action: str, services: set[Service]
) -> None:
    for service in Service:
        cut = UP.with_link(service, LinkState.DOWN)
        granted = any(
            decision.accepted
            for view in slices
            for name, _, decision in calls_for_worker(view, cut)
            if name == action
        )
        assert granted == (service not in services)


def test_process_outcome_is_the_one_disjunct_that_is_enabled(slices: list[JobView]) -> None:
    names = [*OF_TOKEN_AND_LIMITS[2:], "RejectOutcome"]
    for view in slices:
        for attempt in view.attempts:
            decisions = {
                name: decision
                for name, _, decision in calls_for_attempt(view, attempt.token, UP)
                if name in names
            }
            enabled = {name for name, decision in decisions.items() if decision.accepted}
            name, decision = outcomes.process_outcome(view, attempt.token, LIMITS)
            assert decision.accepted == bool(enabled)
            if enabled:
                assert enabled == {name}
                assert decision == decisions[name]


def test_a_step_taken_twice_is_refused_the_second_time(slices: list[JobView]) -> None:
    """Whatever is delivered twice does nothing the second time; work alone may go on."""
    for view in slices:
        for name, token, decision in calls_for_worker(view, UP):
            if not isinstance(decision, Accepted) or token == 0 or name == "SendOutcome":
                continue
            again = {
                other: answer
                for other, _, answer in calls_for_attempt(decision.value, token, UP)
                if other == name
            }
            assert again[name].refused, name


def test_every_refusal_of_an_attempts_action_names_its_guard(slices: list[JobView]) -> None:
    reasons = {
        decision.reason
        for view in slices
        for worker in (UP, DOWN, CUT_OFF)
        for _, _, decision in calls_for_worker(view, worker)
        if decision.refused
    }
    assert reasons <= set(Refusal)
    assert len(reasons) >= 25
