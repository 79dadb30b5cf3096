"""How attempts and jobs end: outcomes, losses, retries, cancels, crashes, cleaning."""

from __future__ import annotations

from uuid import UUID

import pytest
from django.db import transaction

from jobs import queries, transitions
from jobs.ids import IncarnationId, JobId
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
