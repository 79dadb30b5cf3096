"""Areas: cleaned exactly, never beyond, and dead to whoever still holds them."""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path

import pytest

from tests.transfers.runtime import DurableJob, Killed, kill_at
from tests.transfers.trees import KIB, make_awkward, make_dir, make_usual, put, snapshot
from workers.handlers.failures import AttemptFailure, PermanentFailure
from workers.targets.area import Area, NotAnArea


@pytest.fixture
def job(tmp_path: Path) -> DurableJob:
    (tmp_path / "source").mkdir()
    make_usual(str(tmp_path / "source"))
    return DurableJob({"source": str(tmp_path / "source"), "target": str(tmp_path / "target")})


def test_cleaning_removes_this_attempt_s_area_and_nothing_else(job: DurableJob) -> None:
    make_awkward(job.spec["source"])
    make_dir(job.spec["source"], b"no/entry", 0o000)
    job.attempt().run()
    job.attempt().run()
    other = DurableJob(job.spec)
    other.attempt().run()
    job.clean(1)
    assert os.listdir(os.path.join(job.spec["target"], str(job.job_id))) == ["2"]
    job.clean(2)
    assert os.listdir(job.spec["target"]) == [str(other.job_id)]
    assert snapshot(other.files(1)) == snapshot(job.spec["source"])


def test_cleaning_is_idempotent_and_right_when_there_was_never_an_area(job: DurableJob) -> None:
    job.clean(1)
    job.attempt().run()
    job.clean(1)
    job.clean(1)
    job.clean(7)
    assert os.listdir(job.spec["target"]) == []


def test_cleaning_follows_no_link(job: DurableJob, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("precious")
    job.attempt().run()
    os.symlink(outside, os.path.join(job.files(1), "planted"))
    shutil.rmtree(os.path.join(job.files(1), "small"))
    os.symlink(outside, os.path.join(job.files(1), "small"))
    job.clean(1)
    os.mkdir(os.path.join(job.spec["target"], str(job.job_id)))
    os.symlink(outside, job.area(2))
    job.clean(2)
    assert not os.path.lexists(job.area(2))
    assert (outside / "precious").read_text() == "precious"


@pytest.mark.parametrize(
    "path",
    ["/", "/etc", "{target}", "{target}/{job}", "{target}/{job}/0", "{target}/{job}/1/files",
    "{target}/{job}/1/",
     "{target}/{job}/../{job}/1", "{target}/not-a-job/1", "{target}//{job}/1", "{job}/1", "{target}/{job}/01",
     "{target}/{job}/\u0661"],
)  # fmt: skip
def test_what_is_no_area_is_not_cleaned(job: DurableJob, path: str) -> None:
    job.attempt().run()
    with pytest.raises(NotAnArea):
        job.handler.clean(job.spec, path.format(target=job.spec["target"], job=job.job_id))
    assert os.path.exists(job.area(1))


def test_an_area_of_another_target_is_not_cleaned(job: DurableJob, tmp_path: Path) -> None:
    with pytest.raises(PermanentFailure):
        job.handler.clean(job.spec, f"{tmp_path}/elsewhere/{uuid.uuid4()}/1")


@pytest.mark.parametrize("number", [1, 3, 8])
def test_a_zombie_whose_area_was_cleaned_can_create_nothing(job: DurableJob, number: int) -> None:
    def clean(at: int) -> None:
        if at == number:
            job.clean(1)

    with pytest.raises(AttemptFailure) as failure:
        job.attempt(at_checkpoint=clean).run()
    assert job.handler.classify(failure.value).outcome == "WantsRetryableFailure"
    assert os.listdir(job.spec["target"]) == []


def test_leavings_of_the_same_attempt_are_removed_first(job: DurableJob) -> None:
    put(job.area(1), b"files/stranger", 10)
    job.attempt().run()
    assert snapshot(job.files(1)) == snapshot(job.spec["source"])


def test_an_area_is_found_without_anybody_having_recorded_it(job: DurableJob) -> None:
    with pytest.raises(Killed):
        job.attempt(at_check=kill_at(1)).run()
    assert Area.parse(job.area(1)).path == job.area(1)
    job.clean(1)


def test_verify_names_each_kind_of_damage(job: DurableJob) -> None:
    descriptor = job.attempt().run()
    files = Path(job.files(1))
    (files / "zero").unlink()
    (files / "stranger").write_text("x")
    os.chmod(files / "modes/exec", 0o700)
    os.utime(files / "times/old", (5, 5))
    (files / "links/inside").unlink()
    os.symlink("elsewhere", files / "links/inside")
    with open(files / "large/one.bin", "r+b") as file:
        file.write(b"!")
    found = {problem.path: problem.what for problem in job.handler.verify(descriptor)}
    assert found["zero"].startswith("is missing")
    assert found["stranger"] == "is not in the manifest"
    assert found["modes/exec"] == "has mode 700, not 755"
    assert found["times/old"] == "has another modification time"
    assert {"links/inside", "large/one.bin"} <= set(found)


def test_verify_begins_with_the_manifest_itself(job: DurableJob) -> None:
    descriptor = job.attempt().run()
    path = Path(descriptor.location, "manifest.json")
    path.write_bytes(path.read_bytes().replace(b'"size":0', b'"size":1'))
    (problem,) = job.handler.verify(descriptor)
    assert (problem.path, problem.what) == (
        "manifest.json",
        "manifest.json is not the manifest that was committed",
    )
    job.clean(1)
    (problem,) = job.handler.verify(descriptor)
    assert problem.what == "No such file or directory"


def test_fetch_copies_the_result_out(job: DurableJob, tmp_path: Path) -> None:
    make_awkward(job.spec["source"])
    descriptor = job.attempt().run()
    told: list[tuple[int, int]] = []
    dest = tmp_path / "fetched"
    job.handler.fetch(descriptor, str(dest), lambda done, total: told.append((done, total)))
    assert snapshot(str(dest)) == snapshot(job.spec["source"])
    assert told[0] == (0, descriptor.bytes)
    assert told[-1] == (descriptor.bytes, descriptor.bytes)


def test_fetch_takes_neither_a_full_directory_nor_a_damaged_member(job: DurableJob, tmp_path: Path) -> None:
    descriptor = job.attempt().run()
    with pytest.raises(FileExistsError):
        job.handler.fetch(descriptor, job.spec["source"], lambda *_: None)
    with open(os.path.join(job.files(1), "large/two.bin"), "r+b") as file:
        file.write(b"!" * KIB)
    with pytest.raises(Exception, match="does not hold the bytes that were committed"):
        job.handler.fetch(descriptor, str(tmp_path / "fetched"), lambda *_: None)
    assert not (tmp_path / "fetched/large/two.bin").exists()
