"""Processes die or stand still, at every level: the attempt's host, its supervisor, the whole worker."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from uuid import UUID

from jobs.models import Attempt, Job
from jobs.protocol.states import Phase, WorkerState
from tests.freezing import freeze, thaw
from tests.waiting import wait_until
from tests.workers.fleet import LEASE_S, Fleet
from workers.coordination import coordination
from workers.host import processes

BUSY = ({"do": "write", "bytes": 1000}, {"do": "checkpoint"}, {"do": "sleep", "s": 600, "tokens": [1]})


def ends_in_state(pid: int, letters: str) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] in letters
    except FileNotFoundError:
        return "X" in letters


def seconds_until_settled(job_id: UUID) -> float:
    """Until the loss is recorded and the job wants its next attempt. When that starts depends on free
    slots.
    """
    started = time.monotonic()
    wait_until(lambda: Job.objects.get(id=job_id).authority != 1, 20, "the loss is settled")
    return time.monotonic() - started


def wait_checkpoint(job_id: UUID) -> None:
    wait_until(lambda: Job.objects.get(id=job_id).checkpoint_valid, 20, "there is a checkpoint")


def test_a_killed_host_is_noticed_at_once_and_the_job_goes_on_from_its_checkpoint(fleet: Fleet) -> None:
    fleet.worker("hosts", queues="jobs.hosts", concurrency=2)
    job_id = fleet.submit(*BUSY, queue="hosts")
    attempt = fleet.wait_executing(job_id)
    wait_checkpoint(job_id)
    os.kill(fleet.host_of(attempt), signal.SIGKILL)
    assert seconds_until_settled(job_id) < 2
    job = fleet.wait_for(job_id)
    first, second = Attempt.objects.filter(job_id=job_id).order_by("token")
    assert (job.phase, job.committed) == (Phase.SUCCEEDED, 2)
    assert "signal 9" in first.why
    assert (second.initial_progress, second.bytes_sent) == (1000, 0)


def test_a_killed_supervisor_takes_its_host_with_it_and_the_worker_settles_at_once(fleet: Fleet) -> None:
    job_id = fleet.submit(*BUSY, queue="hosts")
    attempt = fleet.wait_executing(job_id)
    wait_checkpoint(job_id)
    supervisor, host = fleet.supervisor_of(attempt), fleet.host_of(attempt)
    os.kill(supervisor, signal.SIGKILL)
    assert seconds_until_settled(job_id) < 2
    assert ends_in_state(host, "XZ")
    job = fleet.wait_for(job_id)
    assert (job.phase, job.committed) == (Phase.SUCCEEDED, 2)
    assert "supervisor was killed" in Attempt.objects.get(id=attempt.id).why
    follower = fleet.wait_for(fleet.submit({"do": "write", "bytes": 1}, queue="hosts"))
    assert follower.phase == Phase.SUCCEEDED


def test_a_killed_worker_s_job_is_reaped_and_resumed_by_another(fleet: Fleet) -> None:
    doomed = fleet.worker("doomed", queues="jobs.groups")
    job_id = fleet.submit(*BUSY, queue="groups")
    attempt = fleet.wait_executing(job_id)
    wait_checkpoint(job_id)
    host = fleet.host_of(attempt)
    fleet.worker("heir", queues="jobs.groups")
    doomed.kill_group()
    killed_at = time.monotonic()
    wait_until(lambda: ends_in_state(host, "XZ"), 2, "the host dies with its worker")
    wait_until(lambda: Job.objects.get(id=job_id).authority != 1, 20, "the lost attempt is reaped")
    assert time.monotonic() - killed_at < LEASE_S + 1 + 2
    job = fleet.wait_for(job_id)
    second = Attempt.objects.get(job_id=job_id, token=2)
    assert (job.phase, job.committed) == (Phase.SUCCEEDED, 2)
    assert (second.initial_progress, second.bytes_sent) == (1000, 0)
    wait_until(lambda: not os.path.exists(attempt.stage_location), 15, "the killed attempt's stage is gone")
    wait_until(
        lambda: Attempt.objects.get(id=attempt.id).worker.state == WorkerState.DOWN, 20, "it is declared Down"
    )


def test_a_worker_that_slept_past_its_lease_wakes_as_a_zombie_and_is_refused(fleet: Fleet) -> None:
    sleeper = fleet.worker("sleeper", queues="jobs.zombies")
    job_id = fleet.submit(
        {"do": "write", "bytes": 10}, {"do": "sleep", "s": 4, "tokens": [1]}, queue="zombies"
    )
    attempt = fleet.wait_executing(job_id)
    frozen = [sleeper.pid, *sleeper.children(), *processes.members_of_session(fleet.host_of(attempt))]
    for pid in frozen:
        freeze(pid)
    fleet.worker("awake", queues="jobs.zombies")
    job = fleet.wait_for(job_id)
    assert (job.phase, job.committed) == (Phase.SUCCEEDED, 2)
    finished_at = job.finished_at
    for pid in frozen:
        thaw(pid)
    wait_until(
        lambda: (
            Attempt.objects.get(id=attempt.id).stop_confirmed_at
            or Attempt.objects.get(id=attempt.id).worker.state == WorkerState.DOWN
        ),
        15,
        "the zombie has stopped",
    )
    wait_until(lambda: not os.path.exists(attempt.stage_location), 15, "its stage is gone")
    job.refresh_from_db()
    assert (job.committed, job.finished_at) == (2, finished_at)
    wait_until(lambda: coordination().snapshot([job_id]).facts[job_id].empty, 10, "Redis is clean")


def test_work_that_holds_the_interpreter_does_not_starve_the_heart(fleet: Fleet) -> None:
    job_id = fleet.submit({"do": "hold_gil", "s": 3 * LEASE_S}, {"do": "write", "bytes": 1}, queue="hosts")
    job = fleet.wait_for(job_id, timeout_s=40)
    assert (job.phase, job.current_token) == (Phase.SUCCEEDED, 1)


def test_whatever_a_killed_attempt_had_started_is_ended_with_it(fleet: Fleet) -> None:
    seconds = 100_000 + os.getpid()
    job_id = fleet.submit(
        {"do": "spawn", "s": seconds}, {"do": "sleep", "s": 600, "tokens": [1]}, queue="hosts"
    )
    attempt = fleet.wait_executing(job_id)
    wait_until(lambda: sleeping(seconds) == 1, 10, "its own process runs")
    os.kill(fleet.host_of(attempt), signal.SIGKILL)
    assert fleet.wait_for(job_id).phase == Phase.SUCCEEDED
    assert sleeping(seconds) == 1  # the second attempt's: it ended well, and its host lives on


def sleeping(seconds: int) -> int:
    """How many processes were started with just that argument."""
    wanted, found = f"sleep\0{seconds}\0".encode(), 0
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError), open(f"/proc/{entry.name}/cmdline", "rb") as command:
                found += command.read() == wanted
    return found


def test_a_job_that_kills_its_process_each_time_runs_out_of_budget(fleet: Fleet) -> None:
    job_id = fleet.submit({"do": "die", "signal": 9}, queue="hosts", max_failures=2, backoff_base_s=0.1)
    job = fleet.wait_for(job_id)
    assert (job.phase, job.current_token) == (Phase.FAILED, 3)
