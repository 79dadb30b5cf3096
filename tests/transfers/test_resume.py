"""A next attempt takes over what is proved, sends nothing of it again, and falls back to zero when a proof
fails.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.transfers.runtime import SMALL, Attempt, DurableJob, Killed, kill_at
from tests.transfers.trees import KIB, make_usual, put, snapshot
from workers.handlers.api import StopReason, StopRequested
from workers.handlers.failures import RetryableFailure

TOTAL = 5000 + sum(1000 * i for i in range(30)) + 700 * KIB + 13 + 300 * KIB + 6 * 10 + 2 * 100 + 50


@pytest.fixture
def job(tmp_path: Path) -> DurableJob:
    (tmp_path / "source").mkdir()
    make_usual(str(tmp_path / "source"))
    return DurableJob(
        {"source": str(tmp_path / "source"), "target": str(tmp_path / "target"), "parallelism": 2}
    )


def killed_at_checkpoint(job: DurableJob, number: int) -> Attempt:
    attempt = job.attempt(at_checkpoint=kill_at(number))
    with pytest.raises(Killed):
        attempt.run()
    return attempt


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
        assert last.sent == TOTAL - resumed_at
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
    assert last.sent == TOTAL - last_resumed(last)
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
    assert last.sent == TOTAL - resumed_at
    assert job.invalidations == []


def area_gone(job: DurableJob) -> None:
    shutil.rmtree(job.area(1))


def whole_target_gone(job: DurableJob) -> None:
    shutil.rmtree(job.spec["target"])


def sealed(job: DurableJob) -> bytes:
    members = [member for member in job.ledgers[1].values() if member.kind == "file" and member.size]
    return os.path.join(os.fsencode(job.files(1)), members[0].path)


def member_missing(job: DurableJob) -> None:
    os.unlink(sealed(job))


def member_rewritten_with_its_times_restored(job: DurableJob) -> None:
    path = sealed(job)
    st = os.stat(path)
    with open(path, "r+b") as file:
        file.write(b"!")
    os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))


def member_longer(job: DurableJob) -> None:
    with open(sealed(job), "ab") as file:
        file.write(b"!")


def member_is_a_link(job: DurableJob) -> None:
    path = sealed(job)
    os.rename(path, path + b".moved")
    os.symlink(path + b".moved", path)


def member_is_a_directory(job: DurableJob) -> None:
    os.unlink(sealed(job))
    os.mkdir(sealed(job))


def member_is_a_pipe(job: DurableJob) -> None:
    os.unlink(sealed(job))
    os.mkfifo(sealed(job))


def a_directory_on_the_way_is_a_link(job: DurableJob) -> None:
    directory = os.path.dirname(sealed(job))
    os.rename(directory, directory + b".moved")
    os.symlink(directory + b".moved", directory)


def partial_path(job: DurableJob) -> str:
    names = os.listdir(os.path.join(job.area(1), "partial"))
    return os.path.join(job.area(1), "partial", max(names, key=lambda name: os.path.getsize(
        os.path.join(job.area(1), "partial", name))))  # fmt: skip


def partial_missing(job: DurableJob) -> None:
    os.unlink(partial_path(job))


def partial_shorter(job: DurableJob) -> None:
    os.truncate(partial_path(job), 1000)


def partial_rewritten(job: DurableJob) -> None:
    with open(partial_path(job), "r+b") as file:
        file.write(b"!!!!")


def ledger_names_a_stranger(job: DurableJob) -> None:
    member = next(iter(job.ledgers[1].values()))
    ledger = job.ledgers[1]
    ledger[b"stranger"] = type(member)(b"stranger", member.kind, 0, member.sha256, 0o644, 0)


def proof_of_another_version(job: DurableJob) -> None:
    assert job.checkpoint is not None
    job.checkpoint.proof = job.checkpoint.proof.replace('"version": 1', '"version": 99')


def progress_of_another_sum(job: DurableJob) -> None:
    assert job.checkpoint is not None
    job.checkpoint.progress += 1


def staging_elsewhere(job: DurableJob) -> None:
    assert job.checkpoint is not None
    job.checkpoint.staging = "/etc"


TAMPERINGS = (
    area_gone, whole_target_gone, member_missing, member_rewritten_with_its_times_restored, member_longer,
    member_is_a_link, member_is_a_directory, member_is_a_pipe, a_directory_on_the_way_is_a_link,
    partial_missing,
    partial_shorter, partial_rewritten, ledger_names_a_stranger, proof_of_another_version,
    progress_of_another_sum,
    staging_elsewhere,
)  # fmt: skip


@pytest.mark.parametrize("tamper", TAMPERINGS)
def test_what_does_not_match_is_not_believed(job: DurableJob, tamper: Callable[[DurableJob], None]) -> None:
    killed_at_checkpoint(job, 14)
    assert job.checkpoint is not None
    assert '"partial": {' in job.checkpoint.proof
    tamper(job)
    last = job.attempt()
    descriptor = last.run()
    assert len(job.invalidations) == 1
    assert last.sent == TOTAL
    assert snapshot(job.files(2)) == snapshot(job.spec["source"])
    assert list(job.handler.verify(descriptor)) == []


@pytest.mark.parametrize("change", ["touch", "add", "remove", "mode", "rewrite"])
def test_a_source_that_is_not_what_it_was_is_sent_from_zero(job: DurableJob, change: str) -> None:
    killed_at_checkpoint(job, 5)
    path = os.path.join(job.spec["source"], "small/01/001.bin")
    if change == "touch":
        os.utime(path)
    elif change == "add":
        put(job.spec["source"], b"small/added", 10)
    elif change == "remove":
        os.unlink(path)
    elif change == "mode":
        os.chmod(path, 0o600)
    else:
        st = os.stat(path)
        with open(path, "r+b") as file:
            file.write(b"!")
        os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))
    last = job.attempt()
    last.run()
    assert len(job.invalidations) == 1
    assert "source" in job.invalidations[0]
    assert snapshot(job.files(2)) == snapshot(job.spec["source"])


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
    assert attempt.sent + last.sent == TOTAL


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
    assert attempt.sent + last.sent == TOTAL


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
