"""Each invariant and property can be broken: a view or step that breaks it is named."""

from dataclasses import replace

import pytest

from jobs.protocol.invariants import INVARIANTS, STATE_CONSISTENCY, broken, broken_durably, permit_safety
from jobs.protocol.properties import PROPERTIES, broken_step
from jobs.protocol.records import (
    AttemptRecord,
    CoordinationRecord,
    JobRecord,
    JobView,
    LeaseRecord,
    Limits,
    Usage,
)
from jobs.protocol.states import AttemptState, LeaseState, OutcomeRequest, Phase, StageState

LIMITS = Limits(max_attempts=2, max_progress=2, local_limit=1, global_limit=1)
RUNNING = JobView(
    JobRecord(phase=Phase.RUNNING, current_token=1, authority=1, dispatch_needed=False),
    (AttemptRecord(1, "w1", AttemptState.EXECUTING, progress=1, stage_state=StageState.PARTIAL),),
    CoordinationRecord(leases=(LeaseRecord(1, LeaseState.LIVE),), live_progress=1, live_progress_token=1),
)
DONE = JobView(
    JobRecord(
        phase=Phase.SUCCEEDED,
        current_token=1,
        dispatch_needed=False,
        committed=1,
        checkpoint=2,
        checkpoint_valid=True,
    ),
    (AttemptRecord(1, "w1", AttemptState.COMMITTED, progress=2, stage_state=StageState.COMPLETE),),
)
ASKS = RUNNING.with_attempt(
    1, pending_outcome=OutcomeRequest.SUCCESS, progress=2, stage_state=StageState.COMPLETE
)
FAILS = RUNNING.with_attempt(1, pending_outcome=OutcomeRequest.PERMANENT_FAILURE)
SECOND = AttemptRecord(2, "w1", AttemptState.EXECUTING)

BROKEN = {
    "TypeOK": [
        RUNNING.with_job(current_token=3),
        RUNNING.with_job(checkpoint=3),
        RUNNING.with_coordination(leases=(LeaseRecord(1, LeaseState.LIVE, age=2),)),
        RUNNING.with_coordination(leases=(LeaseRecord(1, LeaseState.EXPIRED, age=1),)),
        RUNNING.with_coordination(live_progress=3),
        RUNNING.with_attempt(1, progress=-1),
        RUNNING.with_attempt(1, state="AttemptExecuting"),
    ],
    "StateConsistency": [
        RUNNING.with_job(authority=0),
        RUNNING.with_job(cancel_requested=True),
        DONE.with_job(committed=0),
        JobView(JobRecord(dispatch_needed=False)),
        JobView(coordination=CoordinationRecord(queued=True, reservation="w1")),
        JobView(coordination=CoordinationRecord(reservation_age=1)),
        RUNNING.with_attempt(1, worker=""),
        replace(RUNNING, attempts=(*RUNNING.attempts, SECOND)),
        JobView(coordination=CoordinationRecord(leases=(LeaseRecord(1, LeaseState.LIVE),))),
    ],
    "AllocatedTokensUsed": [
        replace(RUNNING, attempts=()),
        JobView(JobRecord(current_token=2), (SECOND,)),
    ],
    "LiveProgressWellFormed": [
        RUNNING.with_coordination(live_progress=2),
        RUNNING.with_coordination(live_progress_token=2),
    ],
    "LiveProgressCompatibleWithLiveLease": [RUNNING.with_coordination(live_progress_token=2)],
    "AtMostOneLiveLeasePerJob": [
        RUNNING.with_coordination(leases=(LeaseRecord(1, LeaseState.LIVE), LeaseRecord(2, LeaseState.LIVE)))
    ],
    "AuthorityWellFormed": [
        RUNNING.with_attempt(1, state=AttemptState.COMMITTED),
        RUNNING.with_job(current_token=2),
        replace(RUNNING, attempts=()),
    ],
    "CommittedResultConsistent": [
        DONE.with_attempt(1, state=AttemptState.STOPPED),
        DONE.with_attempt(1, stage_state=StageState.PARTIAL),
        DONE.with_job(current_token=2),
        DONE.with_job(cancel_requested=True),
        replace(DONE, attempts=()),
    ],
    "CancellationSafety": [DONE.with_job(cancel_requested=True)],
    "ResumeValidity": [
        RUNNING.with_attempt(1, progress=1, initial_progress=2, resumed_from_checkpoint=True),
        RUNNING.with_attempt(1, initial_progress=1),
        RUNNING.with_attempt(1, resumed_from_checkpoint=True),
    ],
    "StagingOwnership": [
        RUNNING.with_attempt(1, stage_state=StageState.CLEANED),
        DONE.with_attempt(1, stage_state=StageState.CLEANED),
        DONE.with_attempt(1, stage_state=StageState.NONE),
    ],
}
BROKEN_STEPS = {
    "TerminalStateIsImmutable": [
        (DONE, DONE.with_job(**{name: value}))
        for name, value in {
            "phase": Phase.QUEUED,
            "cancel_requested": True,
            "current_token": 2,
            "authority": 1,
            "committed": 0,
            "checkpoint": 1,
            "checkpoint_valid": False,
        }.items()
    ],
    "FencingTokensMonotonic": [(RUNNING, RUNNING.with_job(current_token=0))],
    "CommitIsFencedCAS": [
        (before, before.with_job(committed=1))
        for before in (
            RUNNING,
            ASKS.with_job(authority=0),
            ASKS.with_job(current_token=2),
            ASKS.with_job(phase=Phase.CANCELLING),
            ASKS.with_job(cancel_requested=True),
            ASKS.with_job(committed=2),
            ASKS.with_attempt(1, stage_state=StageState.PARTIAL),
            replace(ASKS, attempts=()),
        )
    ],
    "FailureDispositionHonored": [
        (
            FAILS,
            FAILS.with_job(phase=Phase.RETRY_WAIT, authority=0).with_attempt(
                1, state=AttemptState.STOPPED, pending_outcome=OutcomeRequest.NONE
            ),
        )
    ],
}


@pytest.mark.parametrize("view", [JobView(), RUNNING, DONE, ASKS, FAILS])
def test_views_of_ordinary_jobs_break_nothing(view: JobView) -> None:
    assert broken(view, LIMITS) == []
    assert broken_durably(view, LIMITS) == []
    assert broken_step(view, view.with_coordination(cancel_notice=True), LIMITS) == []


@pytest.mark.parametrize(("name", "view"), [(name, view) for name, cases in BROKEN.items() for view in cases])
def test_a_view_that_breaks_an_invariant_is_named(name: str, view: JobView) -> None:
    assert name in broken(view, LIMITS)


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [(name, before, after) for name, steps in BROKEN_STEPS.items() for before, after in steps],
)
def test_a_step_that_breaks_a_property_is_named(name: str, before: JobView, after: JobView) -> None:
    assert name in broken_step(before, after, LIMITS)


def test_every_invariant_and_property_is_tried() -> None:
    assert BROKEN.keys() == INVARIANTS.keys()
    assert BROKEN_STEPS.keys() == PROPERTIES.keys()


def test_every_conjunct_of_state_consistency_is_tried() -> None:
    for name, holds in STATE_CONSISTENCY.items():
        assert any(not holds(view) for view in BROKEN["StateConsistency"]), name


def test_permits_are_bounded_for_the_fleet_and_for_each_worker() -> None:
    assert permit_safety([Usage(1, 1), Usage(1, 0)], LIMITS)
    assert not permit_safety([Usage(2, 1)], LIMITS)
    assert not permit_safety([Usage(1, 1), Usage(1, 2)], LIMITS)


def test_the_store_judges_only_what_it_has_loaded() -> None:
    """A view without the committed attempt, or without what Redis holds, is no defect."""
    assert broken_durably(replace(DONE, attempts=()), LIMITS) == []
    assert broken_durably(replace(RUNNING, attempts=(), coordination=CoordinationRecord()), LIMITS) == []
    assert broken_durably(DONE.with_job(committed=0), LIMITS) == ["state_consistency__committed"]
    assert broken_durably(DONE.with_attempt(1, state=AttemptState.STOPPED), LIMITS) == [
        "CommittedResultConsistent"
    ]
