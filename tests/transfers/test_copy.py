"""A transfer's result is the source, byte for byte, and its manifest says so."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.transfers.runtime import SMALL, DurableJob
from tests.transfers.trees import (
    KIB,
    make_awkward,
    make_dir,
    make_links,
    make_usual,
    put,
    snapshot,
)
from workers.handlers.api import ManifestDescriptor
from workers.handlers.failures import PermanentFailure
from workers.targets.manifest import read_members


@pytest.fixture
def job(tmp_path: Path) -> DurableJob:
    (tmp_path / "source").mkdir()
    return DurableJob({"source": str(tmp_path / "source"), "target": str(tmp_path / "target")})


def manifest_of(descriptor: ManifestDescriptor) -> dict[str, Any]:
    text = Path(descriptor.location, "manifest.json").read_bytes()
    assert hashlib.sha256(text).hexdigest() == descriptor.digest
    assert len(text) == descriptor.size
    return json.loads(text.decode("utf-8"))  # type: ignore[no-any-return]


def test_a_result_is_the_source_with_modes_times_links_and_empty_directories(job: DurableJob) -> None:
    make_usual(job.spec["source"])
    attempt = job.attempt()
    descriptor = attempt.run()
    expected = snapshot(job.spec["source"])
    assert snapshot(job.files(1)) == expected
    assert descriptor.members == len(expected)
    sizes = sum(
        os.path.getsize(p) for p in Path(job.spec["source"]).rglob("*") if p.is_file() and not p.is_symlink()
    )
    assert descriptor.bytes == attempt.sent == sizes
    assert list(job.handler.verify(descriptor)) == []
    assert sorted(os.listdir(job.area(1))) == ["files", "manifest.json"]


def test_names_are_bytes_from_end_to_end(job: DurableJob) -> None:
    make_awkward(job.spec["source"])
    descriptor = job.attempt().run()
    assert snapshot(job.files(1)) == snapshot(job.spec["source"])
    assert list(job.handler.verify(descriptor)) == []
    with open(Path(descriptor.location, "manifest.json"), "rb") as file:
        paths = [member.path for member in read_members(file.fileno())]
    assert set(paths) == set(snapshot(job.spec["source"]))


def test_the_manifest_is_canonical_json_that_any_parser_reads(job: DurableJob) -> None:
    make_awkward(job.spec["source"])
    make_links(job.spec["source"])
    manifest = manifest_of(job.attempt().run())
    assert manifest["job_id"] == str(job.job_id)
    assert manifest["token"] == 1
    assert manifest["totals"]["members"] == len(manifest["members"])
    canonical = json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    stored = Path(job.area(1), "manifest.json").read_text()
    assert stored.replace("\n", "") == canonical


def test_links_are_kept_as_links_and_never_followed(job: DurableJob) -> None:
    make_links(job.spec["source"])
    job.attempt().run()
    result = snapshot(job.files(1))
    assert result == snapshot(job.spec["source"])
    assert result[b"links/abs-outside"].kind == "symlink"


def test_special_files_are_skipped_and_the_manifest_says_so(job: DurableJob) -> None:
    put(job.spec["source"], b"kept", 10)
    os.mkfifo(os.path.join(job.spec["source"], "fifo"))
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(job.spec["source"])  # the path of a socket is short
        server.bind("socket")
        os.chdir(here)
        manifest = manifest_of(job.attempt().run())
    assert manifest["skipped"] == [{"path": "fifo", "why": "fifo"}, {"path": "socket", "why": "socket"}]
    assert set(snapshot(job.files(1))) == {b"kept"}


def test_an_empty_tree_is_a_result(job: DurableJob) -> None:
    descriptor = job.attempt().run()
    assert (descriptor.members, descriptor.bytes) == (0, 0)
    assert list(job.handler.verify(descriptor)) == []


def test_a_path_beyond_path_max_arrives(job: DurableJob) -> None:
    fd = os.open(job.spec["source"], os.O_RDONLY)
    for level in range(60):
        name = b"d%02d-" % level + b"x" * 68
        os.mkdir(name, dir_fd=fd)
        below = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = below
    leaf = os.open(b"leaf", os.O_CREAT | os.O_WRONLY, 0o640, dir_fd=fd)
    os.write(leaf, b"leaf")
    os.close(leaf)
    os.close(fd)
    descriptor = job.attempt().run()
    result = snapshot(job.files(1))
    assert result == snapshot(job.spec["source"])
    assert max(map(len, result)) > 4096
    assert list(job.handler.verify(descriptor)) == []
    job.clean(1)
    assert not os.path.exists(job.area(1))


def test_set_id_bits_are_dropped_because_owners_are_not_kept(job: DurableJob) -> None:
    put(job.spec["source"], b"tool", 10, mode=0o4755)
    descriptor = job.attempt().run()
    assert stat.S_IMODE(os.stat(os.path.join(job.files(1), "tool")).st_mode) == 0o755
    assert list(job.handler.verify(descriptor)) == []


def test_holes_stay_holes(job: DurableJob) -> None:
    for name, size in (("small", 100 * KIB), ("large", 8 * 1024 * KIB)):
        with open(os.path.join(job.spec["source"], name), "wb") as file:
            file.seek(size - 1)
            file.write(b"\1")
    job.attempt().run()
    assert snapshot(job.files(1)) == snapshot(job.spec["source"])
    assert os.stat(os.path.join(job.files(1), "large")).st_blocks * 512 < 1024 * KIB


def test_ten_thousand_small_files_arrive(job: DurableJob) -> None:
    for i in range(10_000):
        path = os.path.join(job.spec["source"], f"{i % 40:02}")
        os.makedirs(path, exist_ok=True)
        with open(os.path.join(path, f"{i}.txt"), "wb") as file:
            file.write(b"%d" % i * 20)
    attempt = job.attempt()
    descriptor = attempt.run()
    assert descriptor.members == 10_040
    assert snapshot(job.files(1)) == snapshot(job.spec["source"])


def test_progress_never_falls_and_ends_at_the_total(job: DurableJob) -> None:
    make_usual(job.spec["source"])
    attempt = job.attempt()
    descriptor = attempt.run()
    told = [progress for progress, total, phase in attempt.progress if phase != "listing"]
    assert told == sorted(told)
    assert told[-1] == descriptor.bytes
    assert {total for _, total, phase in attempt.progress if phase != "listing"} == {descriptor.bytes}


def test_a_checkpoint_is_taken_at_least_every_so_many_bytes_also_inside_a_large_file(job: DurableJob) -> None:
    put(job.spec["source"], b"large", 1000 * KIB)
    attempt = job.attempt()
    attempt.run()
    steps = [
        after - before
        for before, after in zip([0, *attempt.saved_progress], attempt.saved_progress, strict=False)
    ]
    assert len(steps) >= 15
    assert max(steps) <= SMALL.checkpoint_bytes + SMALL.chunk_bytes


def test_a_link_where_the_area_should_be_leads_nowhere(job: DurableJob) -> None:
    put(job.spec["source"], b"x", 10)
    make_dir(job.spec["target"], b"foreign")
    outside = os.path.join(os.path.dirname(job.spec["target"]), "outside")
    os.mkdir(outside)
    os.symlink(outside, os.path.join(job.spec["target"], str(job.job_id)))
    with pytest.raises(PermanentFailure):
        job.attempt().run()
    assert os.listdir(outside) == []
