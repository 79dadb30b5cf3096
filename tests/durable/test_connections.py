"""Connections that break, wherever they break: each action is carried out once, or not at all and said so."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import OperationalError, connection

from jobs import audit, store, submission, transitions
from jobs.errors import DurableStoreUnavailable
from jobs.ids import JobId
from jobs.models import Attempt, CommittedResult, Job, WorkerIncarnation
from jobs.protocol import CoordinationRecord
from jobs.protocol.states import Phase
from jobs.transitions import CancelRequest
from jobs.values import SYSTEM, AttemptEnd
from tests.durable import driver
from tests.durable.cut import CuttingRelay, through_relay

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def relay() -> Iterator[CuttingRelay]:
    with through_relay() as relay:
        yield relay


@pytest.fixture(autouse=True)
def _quick_waits(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="jobs.store")
    monkeypatch.setattr(store, "WAIT_S_MAX", 0.01)


CUTS = pytest.mark.parametrize("when", ["before", "after"])


@CUTS
def test_a_cut_in_the_middle_of_the_commit_of_a_success_publishes_it_once(
    relay: CuttingRelay, when: str
) -> None:
    job_id, worker = driver.accept(), driver.start_worker()
    fence = driver.run(job_id, worker)
    relay.cut_next(when)
    answer = driver.settle(driver.success(fence))
    assert relay.cuts == 1
    assert (answer.value.end, answer.value.repeated) == (AttemptEnd.COMMITTED, when == "after")
    assert CommittedResult.objects.filter(job_id=job_id).count() == 1
    assert driver.actions(job_id).count("AcceptSuccess") == 1


@CUTS
def test_a_cut_in_the_middle_of_the_commit_of_a_grant_gives_the_same_grant(
    relay: CuttingRelay, when: str
) -> None:
    job_id, worker = driver.accept(), driver.start_worker()
    relay.cut_next(when)
    grant = driver.authorize(job_id, worker)
    assert relay.cuts == 1
    assert Attempt.objects.get(job_id=job_id).id == grant.attempt_id


@CUTS
def test_a_cut_in_the_middle_of_the_commit_of_a_submission_accepts_one_job(
    relay: CuttingRelay, when: str
) -> None:
    driver.register()
    Job.objects.count()
    relay.cut_next(when)
    accepted = submission.submit(driver.KIND, {}, key="k")
    assert relay.cuts == 1
    assert accepted.created
    assert Job.objects.get().id == accepted.job_id
    assert driver.actions(accepted.job_id) == ["Init"]


@CUTS
def test_every_other_action_is_done_once_too(relay: CuttingRelay, when: str) -> None:
    worker = driver.start_worker()
    job_id, other = driver.accept(backoff_base_s=0), driver.accept()
    relay.cut_next(when)
    started = driver.start_worker()
    grant = driver.authorize(job_id, worker)
    relay.cut_next(when)
    assert transitions.record_activated([grant.fence])[0].accepted
    relay.cut_next(when)
    assert driver.checkpoint(grant.fence, 10, driver.member("a")).accepted
    relay.cut_next(when)
    assert driver.settle(driver.failure(grant.fence)).value.end == AttemptEnd.RETRYABLE_FAILURE
    relay.cut_next(when)
    transitions.schedule_retry([job_id])
    relay.cut_next(when)
    transitions.request_cancel([CancelRequest(other)], actor=SYSTEM)
    relay.cut_next(when)
    transitions.declare_down([started], why="gone")
    assert relay.cuts == 7
    assert (driver.job(job_id).phase, driver.job(job_id).failures) == (Phase.QUEUED, 1)
    assert driver.job(other).phase == Phase.CANCELLED
    assert WorkerIncarnation.objects.get(id=started).state == "WorkerDown"
    assert audit.audit().clean


def test_a_backend_that_is_ended_in_mid_transaction_is_replaced(relay: CuttingRelay) -> None:
    job_id, worker = driver.accept(), driver.start_worker()
    fence = driver.run(job_id, worker)
    ended: list[bool] = []

    def observe(job_ids: Any) -> dict[JobId, CoordinationRecord]:
        if not ended:
            ended.append(True)
            with pytest.raises(OperationalError), connection.cursor() as cursor:
                cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
            raise OperationalError("the connection is gone")
        return {job_id: CoordinationRecord()}

    assert driver.reap(fence, observe).accepted
    assert driver.actions(job_id).count("ReapLostAttempt") == 1


def test_a_connection_that_was_idle_when_the_server_restarted_is_replaced() -> None:
    job_id = driver.accept()
    with connection.cursor() as cursor, pytest.raises(OperationalError):
        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    (answer,) = transitions.request_cancel([CancelRequest(job_id)], actor=SYSTEM)
    assert answer.accepted


def test_a_server_that_stays_away_is_said_to_be_away_after_bounded_tries(relay: CuttingRelay) -> None:
    job_id = driver.accept()
    relay.close()
    connection.close()
    with pytest.raises(DurableStoreUnavailable):
        transitions.request_cancel([CancelRequest(job_id)], actor=SYSTEM)
