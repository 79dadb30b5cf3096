"""Each failure has one disposition, says what and where in printable words, and frees what it must."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.transfers.runtime import DurableJob, Killed, kill_at
from tests.transfers.trees import KIB, make_usual, put, snapshot
from workers.handlers.failures import (
    PERMANENT_ERRNOS,
    RETRYABLE_ERRNOS,
    AttemptFailure,
    PermanentFailure,
    RetryableFailure,
    SourceChanged,
    classify,
)

NOBODY = 65534
RETRYABLE, PERMANENT = "WantsRetryableFailure", "WantsPermanentFailure"


@pytest.mark.parametrize(
    ("failure", "outcome"),
    [
        (RetryableFailure("x"), RETRYABLE),
        (SourceChanged("x"), RETRYABLE),
        (PermanentFailure("x"), PERMANENT),
        (OSError(errno.ENOSPC, "x"), RETRYABLE),
        (OSError(errno.EDQUOT, "x"), RETRYABLE),
        (OSError(errno.EIO, "x"), RETRYABLE),
        (OSError(errno.EACCES, "x"), PERMANENT),
        (OSError(errno.EROFS, "x"), PERMANENT),
        (OSError(errno.ENOTDIR, "x"), PERMANENT),
        (OSError(errno.ELOOP, "x"), PERMANENT),
        (OSError(errno.ENAMETOOLONG, "x"), PERMANENT),
        (OSError(199, "no such number"), RETRYABLE),
        (OSError("no number"), RETRYABLE),
        (ConnectionResetError(errno.ECONNRESET, "x"), RETRYABLE),
        (MemoryError(), RETRYABLE),
        (KeyError("secret"), PERMANENT),
        (ValueError("secret"), RETRYABLE),
        (KeyboardInterrupt(), RETRYABLE),
    ],
)
def test_every_exception_has_one_disposition(failure: BaseException, outcome: str) -> None:
    disposition = classify(failure)
    assert disposition.outcome == outcome
    assert "secret" not in disposition.reason


def test_no_error_number_is_in_both_tables() -> None:
    assert not PERMANENT_ERRNOS.keys() & RETRYABLE_ERRNOS.keys()


def test_a_reason_is_printable_bounded_and_shows_odd_characters() -> None:
    disposition = classify(OSError(errno.EACCES, "x", b"bad\xff\0\nname\x1b[31m"))
    assert disposition.reason == r"bad\xff\x00\nname\x1b[31m: permission denied (EACCES)".replace(
        r"\xff", r"\\xff"
    )
    assert len(classify(PermanentFailure("x" * 10_000)).reason) == 500
    assert classify(PermanentFailure("nul\0 lone\udcff")).reason == r"nul\x00 lone\udcff"


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file system of 1 MiB; where none may be mounted, a target that is full after as many bytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True)
    if mounted.returncode == 0:
        yield disk
        subprocess.run(["umount", disk], check=True)
        return
    real = os.pwrite

    def pwrite(fd: int, data: bytes, offset: int) -> int:
        used = sum(file.stat().st_size for file in disk.rglob("*") if file.is_file())
        if used + len(data) > 1024 * KIB:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    yield disk


def used_bytes(disk: Path) -> int:
    return sum(file.lstat().st_size for file in disk.rglob("*") if file.is_file())


@pytest.mark.parametrize("size", [100 * KIB, 3000 * KIB], ids=["many small files", "one large file"])
def test_a_full_disk_is_retryable_sends_no_more_than_fits_and_cleaning_frees_it(
    small_disk: Path, tmp_path: Path, size: int
) -> None:
    (tmp_path / "source").mkdir()
    for i in range(3000 * KIB // size):
        put(str(tmp_path / "source"), b"%d" % i, size)
    job = DurableJob({"source": str(tmp_path / "source"), "target": str(small_disk)})
    sent = 0
    for _ in range(3):
        attempt = job.attempt()
        with pytest.raises(RetryableFailure, match="no space left") as failure:
            attempt.run()
        assert job.handler.classify(failure.value).outcome == RETRYABLE
        sent += attempt.sent
    assert sent <= 3 * 1024 * KIB
    for token in (1, 2, 3):
        job.clean(token)
    assert os.listdir(small_disk) == []


def test_a_file_beyond_the_limit_of_the_target_is_a_permanent_failure(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    put(str(tmp_path / "source"), b"too\nlarge", 500 * KIB)
    job = DurableJob({"source": str(tmp_path / "source"), "target": str(tmp_path / "target")})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (300 * KIB, hard))
    try:
        with pytest.raises(PermanentFailure, match=r"too\\nlarge: file too large"):
            job.attempt().run()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture
def plain_user() -> Iterator[Path]:
    """A directory of a user who is not root, whose rights this test then has."""
    place = Path(tempfile.mkdtemp())
    was = os.geteuid()
    if was == 0:
        os.chown(place, NOBODY, NOBODY)
        os.seteuid(NOBODY)
    try:
        yield place
    finally:
        os.seteuid(was)
        shutil.rmtree(place)


def test_a_file_that_may_not_be_read_is_named(plain_user: Path) -> None:
    put(str(plain_user / "source"), b"dir/no\nread", 10, mode=0o000)
    job = DurableJob({"source": str(plain_user / "source"), "target": str(plain_user / "target")})
    with pytest.raises(PermanentFailure, match=r"^source dir/no\\nread: permission denied \(EACCES\)$"):
        job.attempt().run()


def test_a_target_that_may_not_be_written_is_a_permanent_failure(plain_user: Path) -> None:
    put(str(plain_user / "source"), b"x", 10)
    (plain_user / "target").mkdir(mode=0o555)
    job = DurableJob({"source": str(plain_user / "source"), "target": str(plain_user / "target")})
    with pytest.raises(PermanentFailure, match=r"^target: permission denied"):
        job.attempt().run()
    job.clean(1)


def test_a_file_where_a_directory_must_be_is_a_permanent_failure(tmp_path: Path) -> None:
    put(str(tmp_path / "source"), b"x", 10)
    (tmp_path / "target").write_text("in the way")
    job = DurableJob({"source": str(tmp_path / "source"), "target": str(tmp_path / "target")})
    with pytest.raises(AttemptFailure) as failure:
        job.attempt().run()
    assert isinstance(failure.value, PermanentFailure)


def test_a_plain_user_stages_resumes_and_cleans_directories_that_he_may_not_write(plain_user: Path) -> None:
    make_usual(str(plain_user / "source"))
    for closed in ("small", "large", "small/01"):
        os.chmod(plain_user / "source" / closed, 0o555)  # noqa: S103
    job = DurableJob({"source": str(plain_user / "source"), "target": str(plain_user / "target")})
    with pytest.raises(Killed):
        job.attempt(at_checkpoint=kill_at(8)).run()
    descriptor = job.attempt().run()
    assert job.invalidations == []
    assert snapshot(job.files(2)) == snapshot(job.spec["source"])
    assert list(job.handler.verify(descriptor)) == []
    job.clean(1)
    job.clean(2)
    assert os.listdir(job.spec["target"]) == []
    for closed in ("small", "large", "small/01"):
        os.chmod(plain_user / "source" / closed, 0o755)  # noqa: S103


def test_a_link_that_now_leads_the_target_into_the_source_is_seen_when_the_attempt_starts(
    tmp_path: Path,
) -> None:
    put(str(tmp_path / "source"), b"x", 10)
    (tmp_path / "place").mkdir()
    os.symlink(tmp_path / "place", tmp_path / "target")
    job = DurableJob({"source": str(tmp_path / "source"), "target": str(tmp_path / "target")})
    job.handler.validate(job.spec)
    os.unlink(tmp_path / "target")
    os.symlink(tmp_path / "source", tmp_path / "target")
    with pytest.raises(PermanentFailure, match="target"):
        job.attempt().run()
    assert os.listdir(tmp_path / "source") == ["x"]
