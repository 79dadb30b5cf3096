"""Nothing is proved by never happening: every action fires, and the states that matter are reached."""

from collections.abc import Callable, Iterable

import pytest

from credentials.protocol import ACTIONS as CREDENTIAL_ACTIONS
from jobs.protocol.bounds import Bounds
from jobs.protocol.decision import ACTIONS
from jobs.protocol.explorer import Exploration
from jobs.protocol.records import JobView
from jobs.protocol.states import AttemptState, LeaseState, OutcomeRequest, Phase, StageState
from tests.model.as_module import explored

EXPLORED = (
    Bounds(max_attempts=2, local_limit=2, global_limit=2),
    Bounds(workers=2, faults=frozenset({"coordination", "target"}), coord_losses=1, partitions=1),
    Bounds(max_progress=2),
    Bounds(credential_intents=1),
)


@pytest.fixture(scope="module")
def explorations() -> list[Exploration]:
    return [explored(bounds) for bounds in EXPLORED]


def views(explorations: Iterable[Exploration]) -> Iterable[JobView]:
    for found in explorations:
        yield from found.world.slices.views


@pytest.mark.parametrize("action", [*ACTIONS, *CREDENTIAL_ACTIONS])
def test_every_action_fires_somewhere(explorations: list[Exploration], action: str) -> None:
    assert sum(found.transitions.get(action, 0) for found in explorations) > 0


def attempts_in(view: JobView, state: AttemptState) -> int:
    return sum(attempt.state is state for attempt in view.attempts)


SOMETIMES: dict[str, Callable[[JobView], bool]] = {
    "a job succeeds": lambda view: view.job.phase is Phase.SUCCEEDED,
    "a job succeeds at its second attempt": lambda view: view.job.committed == 2,
    "a job fails": lambda view: view.job.phase is Phase.FAILED,
    "a job is cancelled while a zombie runs on": lambda view: (
        view.job.phase is Phase.CANCELLED and attempts_in(view, AttemptState.EXECUTING) > 0
    ),
    "two attempts of a job execute at once": lambda view: attempts_in(view, AttemptState.EXECUTING) == 2,
    "a zombie asks for success": lambda view: any(
        attempt.pending_outcome is OutcomeRequest.SUCCESS and not view.current_authority(attempt.token)
        for attempt in view.attempts
    ),
    "an attempt resumes from a checkpoint": lambda view: any(
        attempt.resumed_from_checkpoint for attempt in view.attempts
    ),
    "a checkpoint is invalid": lambda view: view.job.checkpoint > 0 and not view.job.checkpoint_valid,
    "a loser's stage is cleaned": lambda view: (
        view.job.phase is Phase.SUCCEEDED
        and any(attempt.stage_state is StageState.CLEANED for attempt in view.attempts)
    ),
    "a lease is lost": lambda view: any(lease.state is LeaseState.LOST for lease in view.coordination.leases),
    "an old attempt's lease outlives its authority": lambda view: any(
        lease.state is LeaseState.LIVE and not view.current_authority(lease.token)
        for lease in view.coordination.leases
    ),
    "live progress is stale": lambda view: (
        view.coordination.live_progress_token not in (0, view.job.authority)
    ),
    "a notice reaches a job that is Cancelling": lambda view: view.coordination.cancel_notice,
}


@pytest.mark.parametrize("what", SOMETIMES)
def test_what_matters_is_sometimes_reached(explorations: list[Exploration], what: str) -> None:
    assert any(map(SOMETIMES[what], views(explorations)))


def test_every_phase_and_state_is_reached(explorations: list[Exploration]) -> None:
    seen = list(views(explorations))
    assert {view.job.phase for view in seen} == set(Phase)
    assert {attempt.state for view in seen for attempt in view.attempts} == set(AttemptState)
    assert {attempt.stage_state for view in seen for attempt in view.attempts} == set(StageState)
    assert {lease.state for view in seen for lease in view.coordination.leases} == set(LeaseState)
