"""A checkpoint's proof that fails in any way costs the work, never the result: the attempt starts from
zero.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.transfers.runtime import DurableJob, killed_at_checkpoint
from tests.transfers.trees import USUAL_BYTES, make_usual, put, snapshot


@pytest.fixture
def job(tmp_path: Path) -> DurableJob:
    (tmp_path / "source").mkdir()
    make_usual(str(tmp_path / "source"))
    return DurableJob(
        {"source": str(tmp_path / "source"), "target": str(tmp_path / "target"), "parallelism": 2}
    )


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
    assert last.sent == USUAL_BYTES
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
