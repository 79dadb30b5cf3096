"""From acceptance to checkpoints: what each action writes, refuses, and that a refusal changes nothing."""

from __future__ import annotations

import pytest

from jobs import queries, transitions
from jobs.ids import IncarnationId, JobId, new_id
from jobs.protocol import Fence, Refusal
from jobs.protocol.states import AttemptState, Phase, StageState
from jobs.transitions import InvalidateRequest, StopReport
from jobs.values import Actor, ActorKind, Unasked
from tests.durable import driver

pytestmark = pytest.mark.django_db(transaction=True)

USER = Actor(ActorKind.USER, "ada")


@pytest.fixture
def worker() -> IncarnationId:
    return driver.start_worker()


@pytest.fixture
def job_id() -> JobId:
    return driver.accept()


def test_an_accepted_job_is_queued_and_wants_dispatch(job_id: JobId) -> None:
    job = driver.job(job_id)
    assert (job.phase, job.dispatch_needed, job.current_token) == (Phase.QUEUED, True, 0)
    assert driver.actions(job_id) == ["Init"]


def test_enqueue_offers_the_next_token_of_the_jobs_whose_marker_was_set() -> None:
    first, second = driver.accept(priority=1), driver.accept()
    offers = transitions.enqueue([first, second], lambda given: [o.job_id == first for o in given])
    assert [(offer.job_id, offer.expected_token, offer.priority) for offer in offers] == [(first, 1, 1)]


def test_enqueue_asks_the_script_only_for_queued_jobs(job_id: JobId, worker: IncarnationId) -> None:
    driver.run(job_id, worker)
    asked: list[object] = []

    def project(given: list[transitions.Offer]) -> list[bool]:
        asked.extend(given)
        return [True for _ in given]

    assert transitions.enqueue([job_id], project) == []
    assert asked == []


def test_authorize_allocates_the_token_to_the_holder_of_the_reservation(
    job_id: JobId, worker: IncarnationId
) -> None:
    grant = driver.authorize(job_id, worker)
    job, attempt = driver.job(job_id), driver.attempt(grant.fence)
    assert (job.phase, job.current_token, job.authority, job.dispatch_needed) == (Phase.RUNNING, 1, 1, False)
    assert (attempt.id, attempt.state, attempt.worker_id) == (
        grant.attempt_id,
        AttemptState.AUTHORIZED,
        worker,
    )
    assert attempt.stage_location == grant.stage_location == f"/area/{job_id}/1"
    assert (grant.spec, grant.resume, grant.fence) == ({"what": "nothing"}, None, Fence(job_id, 1))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("token", Unasked.UNEXPECTED_TOKEN),
        ("digest", Unasked.SPEC_DIGEST_DIFFERS),
        ("kind", Unasked.KIND_NOT_SERVED),
        ("worker", Unasked.NO_SUCH_WORKER),
        ("job", Unasked.NO_SUCH_JOB),
        ("reservation", Refusal.RESERVED_BY_ANOTHER),
        ("down", Refusal.WORKER_NOT_UP),
        ("unseen", Unasked.NOT_OBSERVED),
    ],
)
def test_authorize_refuses_and_changes_nothing(job_id: JobId, change: str, reason: object) -> None:
    worker = driver.start_worker(["transfer"] if change == "kind" else [driver.KIND])
    row = driver.job(job_id)
    if change == "down":
        transitions.declare_down([worker], why="it does not answer")
    request = transitions.AuthorizeRequest(
        new_id() if change == "job" else job_id,
        2 if change == "token" else 1,
        new_id() if change == "worker" else worker,
        "0" * 64 if change == "digest" else row.spec_digest,
    )
    observe = driver.reserved_by(new_id() if change == "reservation" else worker)
    before = driver.kept(job_id)
    (answer,) = transitions.authorize_attempt(
        [request], observe=(lambda _: {}) if change == "unseen" else observe, locate=driver.locate
    )
    assert answer.refused
    assert answer.reason == reason  # type: ignore[union-attr]
    assert driver.kept(job_id) == before


def test_two_requests_for_one_job_in_one_batch_see_each_other(job_id: JobId, worker: IncarnationId) -> None:
    request = driver.request_for(job_id, worker)
    first, second = transitions.authorize_attempt(
        [request, request], observe=driver.reserved_by(worker), locate=driver.locate
    )
    assert first.accepted
    assert second.reason == Unasked.UNEXPECTED_TOKEN  # type: ignore[union-attr]


def test_activation_is_recorded_once_and_a_repeat_is_accepted(job_id: JobId, worker: IncarnationId) -> None:
    grant = driver.authorize(job_id, worker)
    for _ in range(2):
        (answer,) = transitions.record_activated([grant.fence])
        assert answer.accepted
    assert driver.attempt(grant.fence).state == AttemptState.EXECUTING
    assert driver.actions(job_id) == ["Init", "AuthorizeAttempt", "ActivateAttempt"]


def test_activation_of_a_reaped_attempt_is_refused(job_id: JobId, worker: IncarnationId) -> None:
    grant = driver.authorize(job_id, worker)
    assert driver.reap(grant.fence).accepted
    (answer,) = transitions.record_activated([grant.fence])
    assert answer.reason == Refusal.NOT_CURRENT_AUTHORITY  # type: ignore[union-attr]


def test_a_checkpoint_keeps_progress_proof_and_members(job_id: JobId, worker: IncarnationId) -> None:
    fence = driver.run(job_id, worker)
    for _ in range(2):
        assert driver.checkpoint(fence, 70, driver.member("b"), driver.member("a")).accepted
    job, attempt = driver.job(job_id), driver.attempt(fence)
    assert (job.checkpoint, job.checkpoint_valid, job.checkpoint_token) == (70, True, 1)
    assert job.checkpoint_proof == {"at": 70}
    assert (attempt.progress, attempt.stage_state) == (70, StageState.PARTIAL)
    assert [m.path for m in queries.staged_members(attempt.id, rows_max=1)] == [b"a", b"b"]
    assert driver.actions(job_id)[-2:] == ["AdvanceAttempt", "PersistCheckpoint"]


def test_a_checkpoint_without_progress_records_members_only(job_id: JobId, worker: IncarnationId) -> None:
    fence = driver.run(job_id, worker)
    assert driver.checkpoint(fence, 0, driver.member("empty", 0)).accepted
    assert driver.job(job_id).checkpoint_valid is False
    assert len(list(queries.staged_members(driver.attempt(fence).id))) == 1


def test_a_zombie_records_neither_checkpoint_nor_members(job_id: JobId, worker: IncarnationId) -> None:
    fence = driver.run(job_id, worker)
    driver.reap(fence)
    before = driver.kept(job_id)
    answer = driver.checkpoint(fence, 70, driver.member("a"))
    assert answer.reason == Refusal.NOT_CURRENT_AUTHORITY
    assert driver.kept(job_id) == before
    assert list(queries.staged_members(driver.attempt(fence).id)) == []


def test_the_next_attempt_starts_from_the_checkpoint_and_the_stage_it_names(
    job_id: JobId, worker: IncarnationId
) -> None:
    first = driver.run(job_id, worker)
    driver.checkpoint(first, 70, driver.member("a"))
    driver.reap(first)
    driver.retry_now(job_id)
    grant = driver.authorize(job_id, worker)
    resume = grant.resume
    assert resume is not None
    assert (resume.progress, resume.token, resume.proof) == (70, 1, {"at": 70})
    assert resume.stage_location == f"/area/{job_id}/1"
    assert driver.attempt(grant.fence).resumed_from == 1


def test_a_stage_that_the_next_attempt_starts_from_is_kept_until_it_has_its_own(
    job_id: JobId, worker: IncarnationId
) -> None:
    first = driver.run(job_id, worker)
    driver.checkpoint(first, 70, driver.member("a"))
    driver.reap(first)
    transitions.cooperative_stop([StopReport(first)])
    driver.retry_now(job_id)
    second = driver.run(job_id, worker)
    (answer,) = transitions.begin_cleanup([first])
    assert answer.reason == Unasked.STAGE_STILL_NEEDED  # type: ignore[union-attr]
    assert queries.stages_to_clean(rows_max=10) == []
    assert driver.checkpoint(second, 70, driver.member("a")).accepted  # adopted, with nothing new
    assert driver.job(job_id).checkpoint_token == 2
    (answer,) = transitions.begin_cleanup([first])
    assert answer.accepted
    assert [fact.fence for fact in queries.stages_to_clean(rows_max=10)] == [first]


def test_after_its_checkpoint_was_invalidated_an_attempt_counts_from_zero_again(
    job_id: JobId, worker: IncarnationId
) -> None:
    fence = driver.run(job_id, worker)
    driver.checkpoint(fence, 70, driver.member("old"))
    (answer,) = transitions.invalidate_checkpoint([InvalidateRequest(job_id, "the source changed", 1)])
    assert answer.accepted
    assert driver.checkpoint(fence, 30, driver.member("new")).accepted
    assert [m.path for m in queries.staged_members(driver.attempt(fence).id)] == [b"new"]
    driver.reap(fence)
    driver.retry_now(job_id)
    grant = driver.authorize(job_id, worker)
    assert grant.resume is not None
    assert grant.resume.progress == 30
    (answer,) = transitions.record_activated([grant.fence])
    assert driver.settle(driver.success(grant.fence, total=50)).accepted
    assert driver.job(job_id).checkpoint == 70 + 50 + 1


def test_a_zombie_cannot_invalidate_its_successors_checkpoint(job_id: JobId, worker: IncarnationId) -> None:
    first = driver.run(job_id, worker)
    driver.checkpoint(first, 70)
    driver.reap(first)
    driver.retry_now(job_id)
    driver.run(job_id, worker)
    (answer,) = transitions.invalidate_checkpoint([InvalidateRequest(job_id, "zombie", 1)])
    assert answer.reason == Refusal.NOT_CURRENT_AUTHORITY  # type: ignore[union-attr]
    assert driver.job(job_id).checkpoint_valid is True
