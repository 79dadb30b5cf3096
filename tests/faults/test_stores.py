"""Redis is wiped or cannot be reached, PostgreSQL is away at the worst moment: no attempt is lost over it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings

from jobs import transitions
from jobs.models import Attempt, Job
from jobs.protocol.states import AttemptState, Phase, WorkerState
from jobs.values import SYSTEM
from tests.conftest import delete_own_keys
from tests.waiting import wait_until
from tests.workers.fleet import LEASE_S, Fleet, database_environment
from tests.workers.proxy import Proxy
from workers import fleet as incarnations


def process_state(pid: int) -> str:
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0]


@contextmanager
def proxy_to(url: str) -> Iterator[Proxy]:
    proxy = Proxy(url)
    try:
        yield proxy
    finally:
        proxy.close()


def test_a_wiped_redis_costs_no_attempt(fleet: Fleet) -> None:
    fleet.worker("wiped", queues="jobs.wiped", concurrency=2)
    running = [fleet.submit({"do": "sleep", "s": 2.5 * LEASE_S}, queue="wiped") for _ in range(2)]
    waiting = [fleet.submit({"do": "write", "bytes": 1}, queue="wiped") for _ in range(5)]
    for job_id in running:
        fleet.wait_executing(job_id)
    delete_own_keys(settings.REDIS_URL)
    for job_id in [*running, *waiting]:
        job = fleet.wait_for(job_id, timeout_s=40)
        assert (job.phase, job.current_token) == (Phase.SUCCEEDED, 1)


def test_work_stops_on_its_own_while_redis_cannot_be_reached_and_goes_on_after(fleet: Fleet) -> None:
    """The partition hits this worker alone, so the others' reaper would take the job: there is no reaper
    here.
    """
    fleet.members["beat"].kill_group()
    with proxy_to(settings.REDIS_URL) as proxy:
        fleet.worker("cut", queues="jobs.cut", REDIS_URL=proxy.url)
        job_id = fleet.submit({"do": "sleep", "s": 4}, {"do": "write", "bytes": 1}, queue="cut")
        attempt = fleet.wait_executing(job_id)
        host = fleet.host_of(attempt)
        proxy.cut()
        cut_at = time.monotonic()
        wait_until(lambda: process_state(host) == "T", 2 * LEASE_S, "the work stands still")
        assert time.monotonic() - cut_at <= LEASE_S + 0.5
        assert Job.objects.get(id=job_id).phase == Phase.RUNNING
        proxy.mend()
        wait_until(lambda: process_state(host) != "T", 10, "the work goes on")
        job = fleet.wait_for(job_id)
        assert (job.phase, job.current_token) == (Phase.SUCCEEDED, 1)
        heard = fleet.wait_for(fleet.submit({"do": "write", "bytes": 1}, queue="cut"), timeout_s=15)
        assert heard.phase == Phase.SUCCEEDED
    fleet.beat()


def test_a_worker_whose_link_hangs_loses_its_job_and_is_refused(fleet: Fleet) -> None:
    with proxy_to(settings.REDIS_URL) as proxy:
        # Its presence outlasts the test, so that nobody declares it Down.
        fleet.worker("hung", queues="jobs.hung", REDIS_URL=proxy.url, REMORA_PRESENCE_MS="120000")
        job_id = fleet.submit({"do": "sleep", "s": 600, "tokens": [1]}, queue="hung")
        attempt = fleet.wait_executing(job_id)
        host = fleet.host_of(attempt)
        proxy.hang()
        fleet.worker("well", queues="jobs.hung")
        job = fleet.wait_for(job_id, timeout_s=40)
        assert (job.phase, job.committed) == (Phase.SUCCEEDED, 2)
        wait_until(
            lambda: not os.path.exists(f"/proc/{host}"), 15, "PostgreSQL's word ends the fenced attempt"
        )
        wait_until(
            lambda: Attempt.objects.get(id=attempt.id).state == AttemptState.STOPPED,
            15,
            "its stop is confirmed",
        )


def test_a_finished_job_waits_for_postgresql_and_is_committed(fleet: Fleet) -> None:
    with proxy_to(database_environment()["DATABASE_URL"]) as proxy:
        fleet.worker("settler", queues="jobs.settle", DATABASE_URL=proxy.url)
        job_id = fleet.submit({"do": "sleep", "s": 2}, {"do": "write", "bytes": 1}, queue="settle")
        fleet.wait_executing(job_id)
        proxy.cut()
        worker = fleet.members["settler"]
        wait_until(lambda: worker.lines("HandlerEnded"), 15, "the handler has ended")
        wait_until(lambda: worker.lines("SettleAgain"), 30, "settling is tried again")
        proxy.mend()
        job = fleet.wait_for(job_id)
        assert (job.phase, job.current_token, job.committed) == (Phase.SUCCEEDED, 1, 1)


def test_a_hanging_postgresql_does_not_cost_a_finished_job_its_lease(fleet: Fleet) -> None:
    with proxy_to(database_environment()["DATABASE_URL"]) as proxy:
        fleet.worker("patient", queues="jobs.patient", DATABASE_URL=proxy.url)
        job_id = fleet.submit({"do": "sleep", "s": 1}, {"do": "write", "bytes": 1}, queue="patient")
        fleet.wait_executing(job_id)
        proxy.hang()
        worker = fleet.members["patient"]
        wait_until(lambda: worker.lines("HandlerEnded"), 15, "the handler has ended")
        time_out = time.monotonic() + 2 * LEASE_S
        wait_until(lambda: time.monotonic() > time_out, 3 * LEASE_S, "two leases have passed")
        assert Job.objects.get(id=job_id).phase == Phase.RUNNING
        proxy.mend()
        job = fleet.wait_for(job_id)
        assert (job.phase, job.current_token) == (Phase.SUCCEEDED, 1)


def test_a_worker_declared_down_starts_anew_as_another_incarnation(fleet: Fleet) -> None:
    worker = fleet.worker("reborn", queues="jobs.reborn")
    job_id = fleet.submit({"do": "sleep", "s": 600, "tokens": [1]}, queue="reborn")
    attempt = fleet.wait_executing(job_id)
    host = fleet.host_of(attempt)
    transitions.declare_down([attempt.worker_id], why="a test says so", actor=SYSTEM)
    wait_until(lambda: not os.path.exists(f"/proc/{host}"), 10, "its attempt is ended")
    job = fleet.wait_for(job_id, timeout_s=60)
    second = Attempt.objects.get(job_id=job_id, token=2)
    assert (job.phase, job.committed) == (Phase.SUCCEEDED, 2)
    assert second.worker_id != attempt.worker_id
    assert second.worker.pid == worker.pid
    assert incarnations.state_of(attempt.worker_id) is WorkerState.DOWN
