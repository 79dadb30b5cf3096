"""Workers are told to stop, go deaf, or are too many of one kind: the fleet goes on."""

from __future__ import annotations

import os
import signal
import time

from jobs.models import Attempt, Job
from jobs.protocol.states import Phase, WorkerState
from remora_site.celery import app
from tests.waiting import wait_until
from tests.workers.fleet import LEASE_S, Fleet

BUSY = ({"do": "write", "bytes": 1000}, {"do": "checkpoint"}, {"do": "sleep", "s": 600, "tokens": [1]})


def test_a_worker_that_is_told_to_stop_hands_its_attempt_over(fleet: Fleet) -> None:
    leaving = fleet.worker("leaving", queues="jobs.drains")
    job_id = fleet.submit(*BUSY, queue="drains")
    attempt = fleet.wait_executing(job_id)
    wait_until(lambda: Job.objects.get(id=job_id).checkpoint_valid, 20, "there is a checkpoint")
    fleet.worker("staying", queues="jobs.drains")
    os.kill(leaving.pid, signal.SIGTERM)
    job = fleet.wait_for(job_id)
    assert leaving.process.wait(10) == 0
    first, second = Attempt.objects.filter(job_id=job_id).order_by("token")
    assert (job.phase, job.committed, job.failures) == (Phase.SUCCEEDED, 2, 0)
    assert first.outcome == "drained"
    assert second.initial_progress == 1000
    attempt.worker.refresh_from_db()
    assert attempt.worker.state == WorkerState.DOWN


def test_an_attempt_that_ends_within_the_grace_is_not_handed_over(fleet: Fleet) -> None:
    """The grace is longer than a lease here: the lease is kept alive all the while."""
    leaving = fleet.worker("finishing", queues="jobs.grace", REMORA_DRAIN_S="60")
    job_id = fleet.submit({"do": "sleep", "s": 1.5 * LEASE_S}, queue="grace")
    fleet.wait_executing(job_id)
    os.kill(leaving.pid, signal.SIGTERM)
    job = fleet.wait_for(job_id)
    assert (job.phase, job.current_token) == (Phase.SUCCEEDED, 1)
    assert leaving.process.wait(15) == 0


def test_a_second_request_to_stop_is_quicker(fleet: Fleet) -> None:
    leaving = fleet.worker("hurried", queues="jobs.hurry", REMORA_DRAIN_S="600")
    job_id = fleet.submit(*BUSY, queue="hurry")
    fleet.wait_executing(job_id)
    os.kill(leaving.pid, signal.SIGTERM)
    wait_until(lambda: "Warm shutdown" in leaving.log.read_text(), 10, "the first request is heard")
    told_at = time.monotonic()
    os.kill(leaving.pid, signal.SIGTERM)
    assert leaving.process.wait(15) == 0
    assert time.monotonic() - told_at < 10
    assert Attempt.objects.get(job_id=job_id).outcome == "drained"
    assert Job.objects.get(id=job_id).phase == Phase.QUEUED


def test_a_worker_that_hears_no_offers_any_more_starts_itself_anew(fleet: Fleet) -> None:
    """Made deaf as an operator might: its consumer is told to take from no queue."""
    worker = fleet.worker("deaf", queues="jobs.deaf", REMORA_DEAF_S="3")
    first = fleet.wait_for(fleet.submit({"do": "write", "bytes": 1}, queue="deaf"))
    host = os.uname().nodename
    with app.connection_for_write() as connection:
        app.control.cancel_consumer("jobs.deaf", connection=connection, destination=[f"deaf@{host}"])
    wait_until(lambda: worker.lines("WorkerRestarts"), 20, "it notices")
    second = fleet.wait_for(fleet.submit({"do": "write", "bytes": 1}, queue="deaf"))
    assert (first.phase, second.phase) == (Phase.SUCCEEDED, Phase.SUCCEEDED)
    before, after = (Attempt.objects.get(job=job).worker for job in (first, second))
    assert (before.pid, before.state) == (after.pid, WorkerState.DOWN)
    assert before.id != after.id


def test_a_second_beat_changes_nothing(fleet: Fleet) -> None:
    fleet.beat("another beat")
    fleet.worker("beaten", queues="jobs.beats", concurrency=2)
    steps = ({"do": "fail", "how": "retryable", "tokens": [1]}, {"do": "write", "bytes": 1})
    jobs = [fleet.submit(*steps, queue="beats") for _ in range(10)]
    for job_id in jobs:
        job = fleet.wait_for(job_id)
        assert (job.phase, job.current_token) == (Phase.SUCCEEDED, 2)
    fleet.members["another beat"].kill_group()
