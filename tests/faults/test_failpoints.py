"""The matrix: at each named point the process that is there is killed, or stopped past the lease, or raises.

All jobs of one kind of fault run together on one fleet, each with its own point. Whatever was hit: every
job ends as it should, its result is right, nothing is left over, and the journal is clean (the fleet's
fixture audits it).
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import UUID

import pytest

from jobs import transitions
from jobs.models import Attempt, Job
from jobs.protocol.states import AttemptState, Phase, StageState
from jobs.transitions import CancelRequest
from jobs.values import SYSTEM
from tests.waiting import wait_until
from tests.workers.fleet import LEASE_S, Fleet, describe
from workers.coordination import coordination
from workers.failpoints import POINTS, VARIABLE
from workers.handlers import handler_for
from workers.handlers.api import ManifestDescriptor

WORK: list[dict[str, object]] = [
    {"do": "write", "bytes": 500},
    {"do": "checkpoint"},
    {"do": "write", "bytes": 20},
]
LOSE: list[dict[str, object]] = [*WORK, {"do": "fail", "how": "retryable", "tokens": [1]}]
WAIT: list[dict[str, object]] = [*WORK, {"do": "sleep", "s": 600}]


def steps_that_reach(point: str) -> list[dict[str, object]]:
    """A probe whose life comes by that point."""
    action = point.partition(".")[0]
    if action in ("stop", "finalized"):
        return WAIT
    return LOSE if action in ("scheduled", "cleaned") else WORK


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("failpoints")


@contextmanager
def continuing(directory: Path) -> Iterator[None]:
    """Lets processes that stopped themselves sleep past the lease, then continues them."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.1):
            for stopped in directory.glob("stopped-*"):
                if time.time() - stopped.stat().st_mtime > 1.3 * LEASE_S:
                    stopped.unlink()
                    with suppress(ProcessLookupError):
                        os.kill(int(stopped.name.partition("-")[2]), signal.SIGCONT)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("action", ["kill", "stop", "raise"])
def test_whatever_fails_at_any_step_every_job_ends_right(fleet: Fleet, directory: Path, action: str) -> None:
    queue = f"matrix-{action}"
    fleet.environment = {VARIABLE: str(directory)}
    # No duty may get through a job's steps before that job's failure is armed.
    fleet.members["control"].kill_group()
    jobs = {point: fleet.submit(*steps_that_reach(point), queue=queue) for point in POINTS}
    for point, job_id in jobs.items():
        (directory / f"{point}@{job_id}").write_text(action)
        if point.startswith("reaped"):
            (directory / f"authorize.after@{job_id}").write_text("kill")
    fleet.worker("control", "control", concurrency=2)
    with continuing(directory):
        for name in ("left", "right"):
            fleet.worker(f"{name}-{action}", queues=f"jobs.{queue}", concurrency=2)
        # Those that wait to be cancelled hold slots that the others need.
        for point, job_id in sorted(jobs.items(), key=lambda job: steps_that_reach(job[0]) is not WAIT):
            check_end(fleet, point, job_id)
        check_nothing_is_left(jobs)
    missed = [point for point, job_id in jobs.items() if not (directory / f"hit-{point}@{job_id}").exists()]
    assert not missed
    for name in ("left", "right"):
        fleet.members[f"{name}-{action}"].kill_group()


def check_end(fleet: Fleet, point: str, job_id: UUID) -> None:
    if steps_that_reach(point) is WAIT:
        executing = Attempt.objects.filter(job_id=job_id, state=AttemptState.EXECUTING)
        wait_until(executing.exists, 90, f"{point}: its attempt executes")
        transitions.request_cancel([CancelRequest(job_id)], actor=SYSTEM)
        fleet.wait_for(job_id, Phase.CANCELLED, timeout_s=30)
        return
    job = fleet.wait_for(job_id, timeout_s=90)
    assert job.phase == Phase.SUCCEEDED, f"{point}: {describe(job_id)}"
    assert job.current_token <= 3, f"{point}: {describe(job_id)}"
    result = job.result
    descriptor = ManifestDescriptor(
        result.manifest_digest, result.manifest_size, result.members, result.bytes, result.location
    )
    assert (result.members, result.bytes) == (2, 520)
    assert list(handler_for("probe").verify(descriptor)) == []


def check_nothing_is_left(jobs: dict[str, UUID]) -> None:
    def redis_is_clean() -> bool:
        return all(facts.empty for facts in coordination().snapshot(list(jobs.values())).facts.values())

    def nothing_runs() -> bool:
        running = (AttemptState.AUTHORIZED, AttemptState.EXECUTING)
        losers = Attempt.objects.filter(job_id__in=jobs.values()).exclude(state=AttemptState.COMMITTED)
        staged = losers.filter(stage_state__in=(StageState.PARTIAL, StageState.COMPLETE))
        return not staged.exists() and not losers.filter(state__in=running).exists()

    def only_results_are_there() -> bool:
        kept = {os.path.dirname(job.result.location) for job in succeeded}
        there = {str(area) for job_id in jobs.values() for area in target.glob(f"{job_id}/*")}
        return there == kept

    succeeded = Job.objects.filter(id__in=jobs.values(), phase=Phase.SUCCEEDED).select_related("result")
    target = Path(Job.objects.get(id=next(iter(jobs.values()))).spec["target"])
    try:
        wait_until(nothing_runs, 60, "no attempt runs, and no loser has a stage")
    except AssertionError as late:
        raise AssertionError({point: describe(job_id) for point, job_id in jobs.items()}) from late
    wait_until(redis_is_clean, 20, "nothing of the jobs is left in Redis")
    wait_until(only_results_are_there, 20, "only committed areas are at the target")
