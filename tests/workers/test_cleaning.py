"""Nothing is left over: of Redis' facts, and of the stages of attempts that lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jobs import transitions
from jobs.ids import IncarnationId, new_id
from jobs.models import Attempt, Job, WorkerIncarnation
from jobs.protocol import Accepted, Fence
from jobs.protocol.states import Phase
from jobs.store import job_of
from tests.coordination.support import Data, marker_fact
from tests.durable import driver
from tests.workers.ground import data, ground, leased, old
from workers import reconciler
from workers.coordination import coordination

__all__ = ["data", "ground", "old"]


def test_leftovers_of_finished_and_of_unknown_jobs_are_collected(old: Data) -> None:
    worker = driver.start_worker()
    done = driver.succeed(driver.accept(), worker)
    alive = driver.run(driver.accept(), worker)
    unknown = new_id()
    for fence in (done, alive):
        leased(old, fence, worker)
    old.write("markers", str(job_of(done)), marker_fact(old))
    old.write("markers", str(unknown), marker_fact(old))
    old.write("markers", "not a job", "not a fact")
    reconciler.collect_garbage()
    facts = coordination().snapshot([job_of(done), job_of(alive), unknown]).facts
    assert facts[job_of(done)].empty
    assert facts[unknown].empty
    assert facts[job_of(alive)].lease is not None
    assert not old.raw.hexists(old.key("markers"), "not a job")


def test_the_lease_of_a_reaped_attempt_is_collected(old: Data) -> None:
    worker = driver.start_worker()
    fence = driver.run(driver.accept(), worker)
    assert driver.reap(fence).accepted
    leased(old, fence, worker)
    reconciler.collect_garbage()
    assert coordination().snapshot([job_of(fence)]).facts[job_of(fence)].lease is None


def test_one_stage_that_cannot_be_deleted_does_not_keep_the_others(tmp_path: Path) -> None:
    worker = driver.start_worker()
    bad, good = (lost_with_stage(tmp_path, worker) for _ in range(2))
    aside = Path(driver.attempt(bad).stage_location)
    aside.rename(tmp_path / "elsewhere")
    aside.symlink_to(
        tmp_path / "elsewhere"
    )  # a stage is never a link: it is not followed, and that is an error
    swept = reconciler.clean_stages()
    assert swept.counts["cleaned"] == 1
    assert swept.set_aside == (f"{bad.job_id}#1: OSError",)
    assert driver.attempt(good).stage_state == "StageCleaned"
    assert not Path(driver.attempt(good).stage_location).exists()
    assert reconciler.clean_stages().set_aside == ()


def lost_with_stage(target: Path, worker: IncarnationId) -> Fence:
    """A failed job whose attempt left a stage."""
    spec = {"target": str(target), "steps": []}
    job_id = driver.accept(spec=spec, max_failures=0)
    request = driver.request_for(job_id, worker)
    (answer,) = transitions.authorize_attempt(
        [request], observe=driver.reserved_by(worker), locate=lambda kind, spec, fence: area(target, fence)
    )
    assert isinstance(answer, Accepted)
    fence = answer.value.fence
    transitions.record_activated([fence])
    Path(area(target, fence), "files").mkdir(parents=True)
    assert driver.checkpoint(fence, 5, driver.member("a")).accepted
    driver.settle(driver.failure(fence))
    assert driver.job(job_id).phase == Phase.FAILED
    return fence


def area(target: Path, fence: Fence) -> str:
    return str(target / str(fence.job_id) / str(fence.token))


def test_an_area_of_which_nothing_was_recorded_is_removed_too(tmp_path: Path) -> None:
    worker = driver.start_worker()
    fence = lost_with_stage(tmp_path, worker)
    other = driver.accept(spec={"target": str(tmp_path), "steps": []}, max_failures=0)
    (answer,) = transitions.authorize_attempt(
        [driver.request_for(other, worker)],
        observe=driver.reserved_by(worker),
        locate=lambda kind, spec, fence: area(tmp_path, fence),
    )
    assert isinstance(answer, Accepted)
    transitions.record_activated([answer.value.fence])
    Path(answer.value.stage_location).mkdir(parents=True)
    driver.settle(driver.failure(answer.value.fence))
    swept = reconciler.clean_stages()
    assert (swept.counts["cleaned"], swept.counts["removed"]) == (1, 1)
    assert not list(tmp_path.glob("*/*"))
    assert "removed" not in reconciler.clean_stages().counts
    assert fence.job_id != other


def test_an_area_that_a_waking_zombie_makes_anew_is_removed_when_its_attempt_ends(tmp_path: Path) -> None:
    fence = lost_with_stage(tmp_path, driver.start_worker())
    reconciler.clean_stages()
    Path(area(tmp_path, fence), "files").mkdir(parents=True)
    reconciler.clean_stage(fence)
    assert not list(tmp_path.glob("*/*"))
    running = driver.run(driver.accept(), driver.start_worker())
    Path(area(tmp_path, running)).mkdir(parents=True)
    assert "removed" not in reconciler.clean_stage(running).counts
    assert Path(area(tmp_path, running)).exists()


def test_a_dry_run_says_what_is_due_and_does_nothing(old: Data, tmp_path: Path) -> None:
    worker = driver.start_worker()
    lost = driver.run(driver.accept(), worker)
    lost_with_stage(tmp_path, worker)
    driver.accept()
    old.raw.delete(old.key("markers"))
    before = snapshot_of_everything(old)
    said = {name: duty(dry_run=True) for name, duty in reconciler.DUTIES.items()}
    assert snapshot_of_everything(old) == before
    assert said["reaper"].counts["would_reaped"] == 1
    assert said["dispatch"].counts["would_offer"] == 1
    assert said["stages"].counts["would_clean"] == 1
    assert driver.job(job_of(lost)).authority == 1


def snapshot_of_everything(data: Data) -> Any:
    durable = [list(model.objects.order_by("pk").values()) for model in (Job, Attempt, WorkerIncarnation)]
    return durable, dict(data.permits()), data.raw.hgetall(data.key("markers"))
