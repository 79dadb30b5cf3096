"""The whole way of a job on a real fleet: it runs once, a duplicate does nothing, a cancel ends it, nothing
is left.
"""

from __future__ import annotations

import os
from pathlib import Path
from uuid import UUID

import pytest

from jobs import transitions
from jobs.models import Attempt, Job
from jobs.protocol.states import Phase
from jobs.transitions import CancelRequest
from jobs.transitions.dispatch import offer_of
from jobs.values import Actor, ActorKind
from tests.waiting import wait_until
from tests.workers.fleet import Fleet, Member
from workers import tasks
from workers.coordination import coordination

USER = Actor(ActorKind.USER, "somebody")


@pytest.fixture(scope="module")
def worker(fleet: Fleet) -> Member:
    return fleet.worker("one", concurrency=2)


def wait_clean(job_id: UUID) -> None:
    def clean() -> bool:
        return coordination().snapshot([job_id]).facts[job_id].empty

    wait_until(clean, 10, f"nothing of job {job_id} is left in Redis")


def cancel(job_id: UUID) -> None:
    (answer,) = transitions.request_cancel([CancelRequest(job_id, "no longer wanted")], actor=USER)
    assert answer.accepted


def test_a_job_runs_once_and_leaves_only_its_result(fleet: Fleet, worker: Member) -> None:
    job_id = fleet.submit({"do": "write", "bytes": 1000}, {"do": "checkpoint"}, {"do": "write", "bytes": 10})
    job = fleet.wait_for(job_id)
    assert (job.phase, job.committed, job.current_token) == (Phase.SUCCEEDED, 1, 1)
    attempt = Attempt.objects.get(job_id=job_id)
    assert attempt.bytes_sent == 1010
    assert Path(job.result.location).exists()
    wait_clean(job_id)


def test_offers_that_come_many_times_start_one_attempt(fleet: Fleet, worker: Member) -> None:
    job_id = fleet.submit({"do": "sleep", "s": 1})
    offer = offer_of(Job.objects.get(id=job_id))
    tasks.send_offers([offer] * 8)
    job = fleet.wait_for(job_id)
    tasks.send_offers([offer] * 3)
    assert (job.phase, job.current_token) == (Phase.SUCCEEDED, 1)
    later = fleet.wait_for(fleet.submit({"do": "sleep", "s": 0}))
    assert later.phase == Phase.SUCCEEDED
    assert Attempt.objects.filter(job_id=job_id).count() == 1


def test_a_failure_of_the_job_is_retried_until_it_passes(fleet: Fleet, worker: Member) -> None:
    job_id = fleet.submit({"do": "fail", "how": "retryable", "tokens": [1, 2]}, {"do": "write", "bytes": 5})
    job = fleet.wait_for(job_id)
    assert (job.phase, job.committed, job.failures) == (Phase.SUCCEEDED, 3, 2)
    wait_clean(job_id)


def test_a_permanent_failure_ends_the_job(fleet: Fleet, worker: Member) -> None:
    job = fleet.wait_for(fleet.submit({"do": "fail", "how": "permanent"}))
    assert (job.phase, job.current_token) == (Phase.FAILED, 1)
    assert "told to fail for good" in Attempt.objects.get(job_id=job.id).why


def test_a_running_job_stops_when_it_is_cancelled(fleet: Fleet, worker: Member) -> None:
    job_id = fleet.submit({"do": "write", "bytes": 100}, {"do": "checkpoint"}, {"do": "sleep", "s": 600})
    fleet.wait_executing(job_id)
    cancel(job_id)
    job = fleet.wait_for(job_id, Phase.CANCELLED, timeout_s=8)
    assert job.committed == 0
    attempt = Attempt.objects.get(job_id=job_id)
    wait_until(lambda: not os.path.exists(attempt.stage_location), 8, "the cancelled stage is gone")
    wait_clean(job_id)


def test_a_handler_that_ignores_every_request_is_killed(fleet: Fleet, worker: Member) -> None:
    job_id = fleet.submit({"do": "ignore_stop", "s": 600})
    attempt = fleet.wait_executing(job_id)
    host = fleet.host_of(attempt)
    cancel(job_id)
    fleet.wait_for(job_id, Phase.CANCELLED, timeout_s=12)
    wait_until(lambda: not os.path.exists(f"/proc/{host}"), 8, "the attempt's process is gone")
    wait_until(
        lambda: Attempt.objects.get(id=attempt.id).stop_confirmed_at is not None, 8, "the stop is confirmed"
    )


def test_a_kind_that_this_worker_does_not_know_is_left_for_one_that_does(fleet: Fleet) -> None:
    fleet.worker("old", queues="jobs.mixed", REMORA_PROBE="0")
    job_id = fleet.submit({"do": "write", "bytes": 1}, queue="mixed")
    wait_until(
        lambda: any(entry["why"] == "kind_not_served" for entry in fleet.members["old"].lines("OfferLeft")),
        15,
        "the old worker leaves the offer",
    )
    assert Job.objects.get(id=job_id).current_token == 0
    fleet.worker("new", queues="jobs.mixed")
    job = fleet.wait_for(job_id)
    assert (job.phase, job.current_token) == (Phase.SUCCEEDED, 1)


def test_an_attempt_that_takes_too_long_is_ended_whatever_it_does(fleet: Fleet, worker: Member) -> None:
    job_id = fleet.submit({"do": "ignore_stop", "s": 600}, time_limit_s=0.5, max_failures=0)
    job = fleet.wait_for(job_id)
    assert (job.phase, job.current_token) == (Phase.FAILED, 1)
    assert "time limit" in Attempt.objects.get(job_id=job_id).why


def test_a_permit_that_is_given_back_goes_to_the_next_job_at_once(fleet: Fleet) -> None:
    """No duty has a hand in it: there is no beat meanwhile."""
    fleet.worker("narrow", queues="jobs.narrow", concurrency=2, REMORA_QUEUE_LIMITS='{"narrow": 1}')
    first = fleet.submit({"do": "sleep", "s": 4}, queue="narrow")
    fleet.wait_executing(first)
    # Only now: an offer that the slot cannot take while it starts is made again by a duty.
    fleet.members["beat"].kill_group()
    second = fleet.submit({"do": "sleep", "s": 0}, queue="narrow")
    assert fleet.wait_for(second).phase == Phase.SUCCEEDED
    ended = fleet.wait_for(first)
    attempt = Attempt.objects.get(job_id=second)
    assert ended.finished_at is not None
    assert attempt.authorized_at >= ended.finished_at
    fleet.beat()
