"""A source that changes while it is read is never published as something that it never was."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.transfers.runtime import DurableJob
from tests.transfers.trees import KIB, put, snapshot
from workers.handlers.failures import PermanentFailure, SourceChanged

LARGE, SMALL_FILE = b"large.bin", b"small.bin"


def append(path: bytes) -> None:
    with open(path, "ab") as file:
        file.write(b"more")


def truncate(path: bytes) -> None:
    os.truncate(path, os.path.getsize(path) // 2)


def overwrite_with_mtime_restored(path: bytes) -> None:
    st = os.stat(path)
    with open(path, "r+b") as file:
        file.write(b"!" * 4096)
    os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))


def replace(path: bytes) -> None:
    other = path + b".new"
    with open(path, "rb") as old, open(other, "wb") as new:
        new.write(old.read()[::-1])
    st = os.stat(path)
    os.utime(other, ns=(st.st_atime_ns, st.st_mtime_ns))
    os.rename(other, path)


def replace_by_a_link(path: bytes) -> None:
    os.rename(path, path + b".moved")
    os.symlink(path + b".moved", path)


@pytest.fixture
def job(tmp_path: Path) -> DurableJob:
    (tmp_path / "source").mkdir()
    put(str(tmp_path / "source"), LARGE, 1000 * KIB)
    put(str(tmp_path / "source"), SMALL_FILE, 4 * KIB)
    return DurableJob({"source": str(tmp_path / "source"), "target": str(tmp_path / "target")})


def in_source(job: DurableJob, name: bytes) -> bytes:
    return os.path.join(os.fsencode(job.spec["source"]), name)


@pytest.mark.parametrize(
    "change", [append, truncate, overwrite_with_mtime_restored, replace, replace_by_a_link]
)
@pytest.mark.parametrize("name", [LARGE, SMALL_FILE])
def test_a_change_half_way_ends_the_attempt_and_the_next_one_starts_from_zero(
    job: DurableJob, change: Callable[[bytes], None], name: bytes
) -> None:
    def half_way(number: int) -> None:
        if number == 7:
            change(in_source(job, name))

    with pytest.raises(SourceChanged, match=name.decode()) as failure:
        job.attempt(at_checkpoint=half_way).run()
    assert job.handler.classify(failure.value).outcome == "WantsRetryableFailure"
    assert job.checkpoint is None
    assert len(job.invalidations) == 1
    last = job.attempt()
    descriptor = last.run()
    assert last.progress[1][0] == 0
    assert snapshot(job.files(2)) == snapshot(job.spec["source"])
    assert list(job.handler.verify(descriptor)) == []


@pytest.mark.parametrize("name", [LARGE, SMALL_FILE])
def test_a_file_that_vanishes_half_way_is_a_permanent_failure(job: DurableJob, name: bytes) -> None:
    def half_way(number: int) -> None:
        if number == 7:
            os.unlink(in_source(job, name))

    with pytest.raises(PermanentFailure, match="vanished"):
        job.attempt(at_checkpoint=half_way).run()


def test_a_source_that_is_gone_is_a_permanent_failure(job: DurableJob) -> None:
    os.rename(job.spec["source"], job.spec["source"] + ".moved")
    with pytest.raises(PermanentFailure, match="no such file"):
        job.attempt().run()


def test_a_file_rewritten_all_the_time_never_becomes_a_result(job: DurableJob) -> None:
    def each_time(_: int) -> None:
        overwrite_with_mtime_restored(in_source(job, LARGE))

    for _ in range(3):
        with pytest.raises(SourceChanged):
            job.attempt(at_checkpoint=each_time).run()


def test_the_control_is_read_once(job: DurableJob) -> None:
    attempt = job.attempt()
    attempt.run()
    assert attempt.sent == 1004 * KIB
