"""Violations are told by a shortest trace; the module's own defect is found in as many steps as a model
checker needs.
"""

from jobs.protocol import dispatch
from jobs.protocol.bounds import Bounds
from jobs.protocol.explorer import Exploration
from jobs.protocol.explorer_trace import trace
from tests.model.as_module import explored
from tests.model.mutants import Mutant, broken

TWO = Bounds(max_attempts=2, local_limit=2, global_limit=2)
FORGETS_OLD_LEASES = Mutant(
    dispatch.activate_attempt, "if lease.state is LeaseState.LIVE else lease", "if False else lease", TWO, ""
)


def found_with(mutant: Mutant, bounds: Bounds) -> Exploration:
    with broken(mutant):
        return explored(bounds)


def test_without_retirement_two_leases_of_one_job_are_live_after_eleven_steps() -> None:
    found = found_with(FORGETS_OLD_LEASES, TWO)
    names = {violation.property for violation in found.violations}
    assert names == {"AtMostOneLiveLeasePerJob", "LiveProgressCompatibleWithLiveLease"}
    assert [str(step.label) for step in trace(found, found.violations[0])] == [
        "Enqueue(j1)",
        "Reserve(j1, w1)",
        "AuthorizeAttempt(j1, w1)",
        "ActivateAttempt(j1, 1)",
        "SendOutcome(j1, 1, WantsRetryableFailure)",
        "AcceptRetryableFailureWithBudget(j1, 1)",
        "ScheduleRetry(j1)",
        "Enqueue(j1)",
        "Reserve(j1, w1)",
        "AuthorizeAttempt(j1, w1)",
        "ActivateAttempt(j1, 2)",
    ]


def test_one_permit_hides_the_defect() -> None:
    assert not found_with(FORGETS_OLD_LEASES, Bounds(max_attempts=2)).violations


def test_a_trace_tells_each_variable_that_changed_and_no_other() -> None:
    found = found_with(FORGETS_OLD_LEASES, TWO)
    first, second, *_, last = trace(found, found.violations[0])
    assert first.as_dict() == {
        "action": "Enqueue",
        "params": {"job": "j1"},
        "changed": {"j1.coordination.queued": [False, True]},
    }
    assert second.changed == {
        "j1.coordination.queued": (True, False),
        "j1.coordination.reservation": (None, "w1"),
    }
    assert last.changed["j1.lease.2.state"] == (None, "LeaseLive")
    assert "j1.lease.1.state" not in last.changed


def test_a_broken_step_is_the_last_of_its_trace() -> None:
    forgetful = Mutant(dispatch.authorize_attempt, "current_token=token", "current_token=token - 2", TWO, "")
    found = found_with(forgetful, TWO)
    broken_step = next(v for v in found.violations if v.property == "FencingTokensMonotonic")
    told = trace(found, broken_step)
    assert [step.label.action for step in told] == ["Enqueue", "Reserve", "AuthorizeAttempt"]
    assert told[-1].changed["j1.job.current_token"] == (0, -1)


def test_exploration_stops_at_the_first_violation_or_goes_on_if_asked() -> None:
    with broken(FORGETS_OLD_LEASES):
        first, every = explored(TWO), explored(TWO, stop_at_first=False)
    assert not first.complete
    assert every.complete
    assert len(every.violations) > len(first.violations)
    assert every.distinct > first.distinct
