"""Each durable action: what it writes, what it refuses, and that a refusal changes nothing."""

from __future__ import annotations

from uuid import UUID

import pytest
from django.db import transaction

from jobs import queries, transitions
from jobs.ids import IncarnationId, JobId, new_id
from jobs.models import CommittedResult, ProtocolEvent, WorkerIncarnation
from jobs.protocol import CoordinationRecord, Fence, Refusal
from jobs.protocol.states import AttemptState, LeaseState, Phase, StageState
from jobs.transitions import CancelRequest, InvalidateRequest, StageCompleteRequest, StopReport
from jobs.values import SYSTEM, Actor, ActorKind, AttemptEnd, Unasked
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


@pytest.mark.parametrize("total", [0, 100])
def test_a_success_is_published_once_with_its_manifest(
    job_id: JobId, worker: IncarnationId, total: int
) -> None:
    fence = driver.run(job_id, worker)
    first, again = driver.settle(driver.success(fence, total)), driver.settle(driver.success(fence, total))
    assert (first.value.end, first.value.repeated) == (AttemptEnd.COMMITTED, False)
    assert (again.value.end, again.value.repeated) == (AttemptEnd.COMMITTED, True)
    job, published = driver.job(job_id), CommittedResult.objects.get(job_id=job_id)
    assert (job.phase, job.committed, job.authority, job.checkpoint) == (Phase.SUCCEEDED, 1, 0, total + 1)
    assert published.manifest_digest == driver.result(fence).manifest_digest
    assert published.attempt_id == driver.attempt(fence).id
    assert driver.actions(job_id)[-3:] == ["AdvanceAttempt", "SendOutcome", "AcceptSuccess"]


def test_the_total_may_be_recorded_before_the_outcome(job_id: JobId, worker: IncarnationId) -> None:
    fence = driver.run(job_id, worker)
    for _ in range(2):
        (answer,) = transitions.record_stage_complete([StageCompleteRequest(fence, 100)])
        assert answer.accepted
    assert driver.attempt(fence).stage_state == StageState.COMPLETE
    assert driver.settle(driver.success(fence)).value.end == AttemptEnd.COMMITTED


def test_a_reaped_attempt_cannot_commit(job_id: JobId, worker: IncarnationId) -> None:
    fence = driver.run(job_id, worker)
    driver.reap(fence)
    answer = driver.settle(driver.success(fence))
    assert (answer.value.end, answer.value.phase) == (AttemptEnd.REJECTED, Phase.RETRY_WAIT)
    attempt = driver.attempt(fence)
    assert (attempt.state, attempt.outcome) == (AttemptState.STOPPED, AttemptEnd.LOST)
    assert attempt.stop_confirmed_at is not None
    assert not CommittedResult.objects.exists()


def test_a_success_after_a_cancel_request_is_rejected(job_id: JobId, worker: IncarnationId) -> None:
    fence = driver.run(job_id, worker)
    transitions.request_cancel([CancelRequest(job_id, "wrong source")], actor=USER)
    assert driver.settle(driver.success(fence)).value.end == AttemptEnd.REJECTED
    (answer,) = transitions.finalize_cancel([job_id])
    assert answer.accepted
    job = driver.job(job_id)
    assert (job.phase, job.cancel_reason, job.committed) == (Phase.CANCELLED, "wrong source", 0)


def test_retryable_failures_are_borne_up_to_the_limit_and_the_next_is_permanent(
    worker: IncarnationId,
) -> None:
    job_id = driver.accept(max_failures=2)
    ends = []
    for _ in range(3):
        ends.append(driver.settle(driver.failure(driver.run(job_id, worker))).value.end)
        driver.retry_now(job_id)
    assert ends == [AttemptEnd.RETRYABLE_FAILURE, AttemptEnd.RETRYABLE_FAILURE, AttemptEnd.PERMANENT_FAILURE]
    assert (driver.job(job_id).phase, driver.job(job_id).why) == (Phase.FAILED, "no space")


def test_the_last_attempt_of_the_budget_fails_the_job(worker: IncarnationId) -> None:
    job_id = driver.accept(max_attempts=1)
    answer = driver.settle(driver.failure(driver.run(job_id, worker)))
    assert answer.value.action == "AcceptRetryableFailureExhausted"
    assert driver.job(job_id).phase == Phase.FAILED


def test_a_drained_attempt_is_rescheduled_at_once_and_is_no_failure(
    job_id: JobId, worker: IncarnationId
) -> None:
    fence = driver.run(job_id, worker)
    answer = driver.settle(driver.failure(fence, "the worker shuts down", drained=True))
    assert answer.value.end == AttemptEnd.DRAINED
    assert driver.job(job_id).failures == 0
    assert queries.due_retries(rows_max=10) == [job_id]


def test_a_job_that_loses_every_attempt_without_progress_ends(worker: IncarnationId) -> None:
    job_id = driver.accept(max_losses=2)
    assert driver.reap(driver.run(job_id, worker)).accepted
    driver.retry_now(job_id)
    assert driver.reap(driver.run(job_id, worker)).accepted
    job = driver.job(job_id)
    assert (job.phase, job.max_attempts, job.losses_in_row) == (Phase.FAILED, 2, 2)
    assert "2 losses in a row" in job.why


def test_a_loss_after_checkpoint_progress_starts_the_count_again(worker: IncarnationId) -> None:
    job_id = driver.accept(max_losses=2)
    for progress in (10, 20, 30):
        fence = driver.run(job_id, worker)
        driver.checkpoint(fence, progress)
        driver.reap(fence)
        driver.retry_now(job_id)
    assert (driver.job(job_id).phase, driver.job(job_id).losses_in_row) == (Phase.QUEUED, 0)


def test_an_attempt_with_a_live_lease_is_not_reaped(job_id: JobId, worker: IncarnationId) -> None:
    fence = driver.run(job_id, worker)
    before = driver.kept(job_id)
    assert driver.reap(fence, driver.leased(1)).reason == Refusal.LEASE_IS_LIVE
    assert driver.reap(fence, lambda _: {}).reason == Unasked.NOT_OBSERVED
    assert driver.kept(job_id) == before


def test_an_authorised_attempt_is_reaped_only_without_its_reservation(
    job_id: JobId, worker: IncarnationId
) -> None:
    grant = driver.authorize(job_id, worker)
    assert driver.reap(grant.fence, driver.reserved_by(worker)).reason == Refusal.RESERVED
    assert driver.reap(grant.fence).accepted
    assert driver.attempt(grant.fence).state == AttemptState.STOPPED


def test_a_retry_waits_for_its_time(worker: IncarnationId) -> None:
    job_id = driver.accept(backoff_base_s=3600, backoff_cap_s=3600)
    driver.settle(driver.failure(driver.run(job_id, worker), retry_after_s=1000))
    (answer,) = transitions.schedule_retry([job_id])
    assert answer.reason == Unasked.NOT_DUE  # type: ignore[union-attr]
    assert queries.due_retries(rows_max=10) == []
    assert driver.retry_now(job_id).accepted
    assert driver.job(job_id).phase == Phase.QUEUED


def test_a_waiting_job_is_cancelled_at_once_and_only_once(job_id: JobId) -> None:
    first, second = (
        transitions.request_cancel([CancelRequest(job_id, reason)], actor=USER)[0] for reason in ("a", "b")
    )
    assert first.accepted
    assert second.reason == Refusal.NOT_CANCELLABLE  # type: ignore[union-attr]
    assert (driver.job(job_id).phase, driver.job(job_id).cancel_reason) == (Phase.CANCELLED, "a")


@pytest.mark.parametrize("lease", [LeaseState.EXPIRED, LeaseState.LOST])
def test_a_worker_that_stops_on_its_own_says_why(
    job_id: JobId, worker: IncarnationId, lease: LeaseState
) -> None:
    fence = driver.run(job_id, worker)
    (refused,) = transitions.cooperative_stop([StopReport(fence)])
    assert refused.reason == Refusal.NO_REASON_TO_STOP  # type: ignore[union-attr]
    for _ in range(2):
        (answer,) = transitions.cooperative_stop([StopReport(fence, lease=lease, why="lease gone")])
        assert answer.accepted
    assert driver.attempt(fence).state == AttemptState.STOPPED
    assert driver.job(job_id).authority == 1  # the reaper's to take
    assert driver.reap(fence).accepted


def test_an_incarnation_goes_down_for_good_with_all_its_attempts(worker: IncarnationId) -> None:
    jobs = [driver.accept() for _ in range(3)]
    fences = [driver.run(jobs[0], worker), driver.authorize(jobs[1], worker).fence]
    (answer,) = transitions.declare_down([worker], why="no heartbeat", actor=SYSTEM)
    assert answer.accepted
    assert {driver.attempt(fence).state for fence in fences} == {AttemptState.STOPPED}
    assert driver.job(jobs[0]).phase == Phase.RUNNING  # authority stays, for the reaper
    (again,) = transitions.declare_down([worker], why="no heartbeat")
    assert again.reason == Refusal.WORKER_NOT_UP  # type: ignore[union-attr]
    assert WorkerIncarnation.objects.get(id=worker).why == "no heartbeat"
    assert ProtocolEvent.objects.filter(action="CrashWorker").count() == 3


def test_a_stage_is_cleaned_when_its_attempt_can_no_longer_write(
    job_id: JobId, worker: IncarnationId
) -> None:
    fence = driver.run(job_id, worker)
    driver.checkpoint(fence, 70, driver.member("a"))
    transitions.invalidate_checkpoint([InvalidateRequest(job_id, "operator")])
    driver.reap(fence)
    (may_write,) = transitions.begin_cleanup([fence])
    assert may_write.reason == Refusal.MAY_STILL_WRITE  # type: ignore[union-attr]
    transitions.declare_down([worker], why="dead")
    (answer,) = transitions.begin_cleanup([fence])
    assert answer.value.location == f"/area/{job_id}/1"  # type: ignore[union-attr]
    (cleaned,) = transitions.cleanup_stage([fence])
    assert cleaned.accepted
    assert driver.attempt(fence).stage_state == StageState.CLEANED
    assert list(queries.staged_members(driver.attempt(fence).id)) == []
    (again,) = transitions.cleanup_stage([fence])
    assert again.reason == Refusal.NOTHING_STAGED  # type: ignore[union-attr]


def test_a_committed_stage_is_never_cleaned(job_id: JobId, worker: IncarnationId) -> None:
    fence = driver.succeed(job_id, worker)
    (answer,) = transitions.begin_cleanup([fence])
    assert answer.reason == Refusal.COMMITTED  # type: ignore[union-attr]


def test_an_outcome_may_be_sent_first_and_processed_by_anyone(job_id: JobId, worker: IncarnationId) -> None:
    fence = driver.run(job_id, worker)
    (sent,) = transitions.send_outcome([driver.failure(fence, "disk full")])
    assert sent.accepted
    assert [fact.fence for fact in queries.outcomes_pending(rows_max=10)] == [fence]
    (answer,) = transitions.process_outcome([fence])
    assert answer.value.end == AttemptEnd.RETRYABLE_FAILURE  # type: ignore[union-attr]
    assert driver.job(job_id).why == "disk full"


def test_one_batch_accepts_and_refuses_each_element_by_itself(worker: IncarnationId) -> None:
    jobs = [driver.accept() for _ in range(4)]
    fences = [driver.run(job, worker) for job in jobs[:3]]
    driver.reap(fences[1])
    requests = [driver.success(fences[0]), driver.success(fences[1]), driver.failure(fences[2])]
    answers = transitions.settle([*requests, driver.success(Fence(jobs[3], 1))])
    ends = [getattr(answer, "value", None) and answer.value.end for answer in answers]  # type: ignore[union-attr]
    assert ends == [AttemptEnd.COMMITTED, AttemptEnd.REJECTED, AttemptEnd.RETRYABLE_FAILURE, None]
    assert answers[3].reason == Unasked.NO_SUCH_ATTEMPT  # type: ignore[union-attr]


def test_a_transition_owns_its_transaction(job_id: JobId) -> None:
    with transaction.atomic(), pytest.raises(RuntimeError, match="durable"):
        transitions.request_cancel([CancelRequest(job_id)], actor=USER)


def test_the_journal_says_who_and_what_changed(job_id: JobId, worker: IncarnationId) -> None:
    driver.run(job_id, worker)
    event = ProtocolEvent.objects.get(job_id=job_id, action="AuthorizeAttempt")
    assert (event.actor_kind, event.incarnation, event.token) == ("incarnation", worker, 1)
    assert event.before == {
        "job.phase": "Queued",
        "job.current_token": 0,
        "job.authority": 0,
        "job.dispatch_needed": True,
    }
    assert event.after["job.phase"] == "Running"
    assert event.after["attempt.1.worker"] == str(worker)
    assert event.observed["coordination"] == {"reservation": str(worker)}


def test_the_attempts_of_a_worker_are_found(worker: IncarnationId) -> None:
    jobs = [driver.accept() for _ in range(2)]
    fences = [driver.run(job, worker) for job in jobs]
    driver.succeed(driver.accept(), worker)
    assert [fact.fence for fact in queries.active_attempts(worker)] == fences
    assert [fact.fence for fact in queries.running(rows_max=10)] == fences
    assert [fact.fence for fact in queries.running(rows_max=10, after=jobs[0])] == fences[1:]
    assert isinstance(queries.running(rows_max=1)[0].worker, UUID)


def test_an_observation_is_made_under_the_row_locks(job_id: JobId, worker: IncarnationId) -> None:
    from tests.durable.locks import is_locked

    fence = driver.run(job_id, worker)
    seen: list[bool] = []

    def observe(job_ids: object) -> dict[JobId, CoordinationRecord]:
        seen.append(is_locked(job_id))
        return {job_id: CoordinationRecord()}

    assert driver.reap(fence, observe).accepted
    assert seen == [True]
