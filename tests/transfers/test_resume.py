"""A next attempt takes over what is proved, sends nothing of it again, and falls back to zero when a proof
fails.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.transfers.runtime import SMALL, Attempt, DurableJob, Killed, kill_at, killed_at_checkpoint
from tests.transfers.trees import USUAL_BYTES, make_usual, snapshot
from workers.handlers.api import StopReason, StopRequested
from workers.handlers.failures import RetryableFailure


@pytest.fixture
def job(tmp_path: Path) -> DurableJob:
    (tmp_path / "source").mkdir()
    make_usual(str(tmp_path / "source"))
    return DurableJob(
        {"source": str(tmp_path / "source"), "target": str(tmp_path / "target"), "parallelism": 2}
    )


def checkpoints_of_a_whole_run(job: DurableJob) -> int:
    attempt = job.attempt()
    attempt.run()
    job.clean(attempt.fence.token)
    job.checkpoint = None
    return attempt.checkpoints


def test_killed_after_any_checkpoint_the_next_attempt_sends_only_the_rest(job: DurableJob) -> None:
    expected = snapshot(job.spec["source"])
    for number in range(1, checkpoints_of_a_whole_run(job) + 1):
        killed = killed_at_checkpoint(job, number)
        assert job.checkpoint is not None
        resumed_at = job.checkpoint.progress
        last = job.attempt()
        descriptor = last.run()
        job.clean(killed.fence.token)
        assert snapshot(job.files(last.fence.token)) == expected
        assert list(job.handler.verify(descriptor)) == []
        assert last.sent == USUAL_BYTES - resumed_at
        assert job.invalidations == []
        told = [progress for progress, _, phase in last.progress if phase == "copying"]
        assert told[0] == resumed_at
        job.clean(last.fence.token)
        job.checkpoint = None


def test_killed_at_each_of_many_checks_in_a_row_it_still_ends(job: DurableJob) -> None:
    for step in itertools.count(40, 7):
        attempt = job.attempt(at_check=kill_at(step))
        try:
            descriptor = attempt.run()
        except Killed:
            continue
        break
    assert snapshot(job.files(attempt.fence.token)) == snapshot(job.spec["source"])
    assert list(job.handler.verify(descriptor)) == []
    assert job.invalidations == []


def test_the_first_progress_after_adoption_is_recorded_as_the_attempt_s_own(job: DurableJob) -> None:
    first = killed_at_checkpoint(job, 4)
    killed_at_checkpoint(job, 1)
    job.clean(1)
    assert job.checkpoint is not None
    assert job.checkpoint.token == 2
    assert job.checkpoint.progress - first.saved_progress[-1] <= SMALL.chunk_bytes
    last = job.attempt()
    last.run()
    assert last.sent == USUAL_BYTES - last_resumed(last)
    assert job.invalidations == []
    assert snapshot(job.files(3)) == snapshot(job.spec["source"])


def last_resumed(attempt: Attempt) -> int:
    return next(progress for progress, _, phase in attempt.progress if phase == "copying")


def test_where_the_file_system_cannot_link_members_are_copied(
    job: DurableJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_at_checkpoint(job, 8)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(os, "copy_file_range", refuse)
    last = job.attempt()
    last.run()
    job.clean(1)
    assert job.invalidations == []
    assert snapshot(job.files(2)) == snapshot(job.spec["source"])


def test_a_half_written_file_that_was_sealed_after_the_checkpoint_is_still_found(job: DurableJob) -> None:
    def kill_once_sealed(_: int) -> None:
        point = job.checkpoint
        if point and '"partial": {' in point.proof and os.listdir(os.path.join(job.area(1), "partial")) == []:
            raise Killed

    attempt = job.attempt(at_check=kill_once_sealed)
    with pytest.raises(Killed):
        attempt.run()
    assert job.checkpoint is not None
    resumed_at = job.checkpoint.progress
    last = job.attempt()
    last.run()
    assert last.sent == USUAL_BYTES - resumed_at
    assert job.invalidations == []


@pytest.mark.parametrize("reason", [StopReason.DRAIN, StopReason.TIME_LIMIT])
def test_a_drained_attempt_leaves_a_checkpoint_of_all_it_has(job: DurableJob, reason: StopReason) -> None:
    def stop(number: int) -> None:
        if job.checkpoint is not None and number % 50 == 0:
            raise StopRequested(reason)

    attempt = job.attempt(at_check=stop)
    with pytest.raises(StopRequested):
        attempt.run()
    last = job.attempt()
    last.run()
    assert attempt.sent + last.sent == USUAL_BYTES


def test_an_attempt_that_is_cancelled_records_nothing_more(job: DurableJob) -> None:
    def stop(number: int) -> None:
        if number == 100:
            raise StopRequested(StopReason.CANCEL)

    attempt = job.attempt(at_check=stop)
    with pytest.raises(StopRequested):
        attempt.run()
    assert attempt.progress[-1][0] > (job.checkpoint.progress if job.checkpoint else 0)


@pytest.mark.parametrize("last_read", [18, 19, 20, 21])
def test_an_ordinary_failure_leaves_a_checkpoint_of_all_it_has(
    job: DurableJob, monkeypatch: pytest.MonkeyPatch, last_read: int
) -> None:
    real, reads = os.preadv, itertools.count()

    def fail_late(*arguments: object) -> int:
        if next(reads) == last_read:
            raise OSError(5, "Input/output error")
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "preadv", fail_late)
    attempt = job.attempt()
    with pytest.raises(RetryableFailure, match="input/output error"):
        attempt.run()
    assert job.checkpoint is not None
    assert job.checkpoint.progress == attempt.sent
    last = job.attempt()
    last.run()
    assert attempt.sent + last.sent == USUAL_BYTES


def test_the_earlier_attempt_may_still_write_and_changes_nothing_adopted(job: DurableJob) -> None:
    """A zombie: it wakes up after its successor has adopted its members, and goes on to its end."""
    successor: list[Attempt] = []

    def meanwhile(number: int) -> None:
        if number == 5:
            successor.append(job.attempt())
            successor[0].run()

    zombie = job.attempt(at_checkpoint=meanwhile)
    zombie.persist_checkpoint = _only_until(zombie, 5)  # type: ignore[method-assign]
    zombie.run()
    assert snapshot(job.files(2)) == snapshot(job.spec["source"])
    job.clean(1)
    assert snapshot(job.files(2)) == snapshot(job.spec["source"])


def _only_until(attempt: Attempt, number: int) -> Callable[..., None]:
    real = attempt.persist_checkpoint

    def persist(*arguments: object) -> None:
        if attempt.checkpoints < number:
            real(*arguments)  # type: ignore[arg-type]

    return persist
