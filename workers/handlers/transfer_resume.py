"""Resuming: take over what an earlier attempt had sealed, and believe none of it unproved.

The source must be, entry for entry, what it was; every member must have the size and the digest that were
recorded, by reading it; the beginning of the half-written file must have its digest. Members become this
attempt's own (links or copies in its own area) before they are relied on, so that neither the earlier
attempt's cleaning nor the earlier attempt itself, should it still run, can touch them. One thing that does
not match, and nothing is taken over.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from threading import Event
from typing import Any, Final

from workers.files.names import decode_name, show_name
from workers.files.walk import Entry, EntryKind
from workers.handlers.api import AttemptContext, MemberKind, ResumePoint, SealedMember
from workers.handlers.pool import Interrupted, WaitingPool
from workers.handlers.transfer_ledger import (
    PROOF_VERSION,
    Ledger,
    PartialFile,
    TransferLimits,
    kept_mode,
    link_digest,
)
from workers.sources.posix import Listing
from workers.targets.area import Area, NotAnArea
from workers.targets.posix import EarlierStage, Stage, clone_range, stamp, target_failure

# What reading an area that was cleaned or tampered with can answer. Other errors are the target's own.
_AREA_IS_NOT_AS_RECORDED: Final = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.EINVAL, errno.EACCES}
)


class ProofFails(Exception):
    """Something of the checkpoint is not what it was recorded to be."""


class DigestCheck:
    """One adopted file, read by a thread of the pool."""

    def __init__(self, index: int, entry: Entry, member: SealedMember, fd: int, chunk_bytes: int) -> None:
        self.index, self.entry, self.member = index, entry, member
        self.failure: Exception | None = None
        self.mtime_ns = 0
        self._fd, self._chunk_bytes = fd, chunk_bytes

    def work(self, stop: Event) -> None:
        st = os.fstat(self._fd)
        if not stat.S_ISREG(st.st_mode) or st.st_size != self.member.size:
            raise ProofFails(f"{show_name(self.entry.path)} is not the file that was sealed")
        if _digest_of(self._fd, st.st_size, self._chunk_bytes, stop).hexdigest() != self.member.sha256:
            raise ProofFails(f"{show_name(self.entry.path)} does not hold the bytes that were sealed")
        if (stat.S_IMODE(st.st_mode), st.st_mtime_ns) != (kept_mode(self.entry), self.member.mtime_ns):
            stamp(self._fd, self.entry.mode, self.entry.mtime_ns)
        self.mtime_ns = os.fstat(self._fd).st_mtime_ns

    def release(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Adoption:
    def __init__(
        self, ctx: AttemptContext, stage: Stage, listing: Listing, ledger: Ledger, limits: TransferLimits,
        parallelism: int,
    ) -> None:  # fmt: skip
        self._ctx, self._stage, self._listing, self._ledger = ctx, stage, listing, ledger
        self._limits, self._parallelism = limits, parallelism

    def run(self, resume: ResumePoint) -> bool:
        """Take everything over, or nothing: then the checkpoint is invalid and the stage empty."""
        try:
            self._adopt(resume)
        except ProofFails as exc:
            self._ledger.reset()
            try:
                self._stage.empty()
            except OSError as error:
                raise target_failure(error) from error
            self._ctx.invalidate_checkpoint(str(exc))
            return False
        return True

    def _adopt(self, resume: ResumePoint) -> None:
        partial_path, partial = _read_proof(resume.proof, self._listing)
        try:
            with EarlierStage(Area.parse(resume.staging)) as earlier:
                found = self._adopt_members(earlier, resume.members, partial_path)
                if partial is not None:
                    self._adopt_partial(earlier, partial, found)
        except NotAnArea as exc:
            raise ProofFails("the checkpoint names no staging area") from exc
        except OSError as exc:
            if exc.errno in _AREA_IS_NOT_AS_RECORDED:
                raise ProofFails(
                    f"the earlier attempt's staging area is not as recorded: {exc.strerror}"
                ) from exc
            raise target_failure(exc) from exc
        if self._ledger.progress != resume.progress:
            raise ProofFails(
                f"{self._ledger.progress} bytes were found, the checkpoint says {resume.progress}"
            )
        self._ledger.adopted()

    def _adopt_members(
        self, earlier: EarlierStage, members: Iterator[SealedMember], partial_path: bytes | None
    ) -> int | None:
        """Walk listing and ledger side by side, both in order of path; the row of the half-written file."""
        found, expected = None, next(members, None)
        pool = WaitingPool[DigestCheck](self._parallelism)
        try:
            for index, entry in enumerate(self._listing):
                self._ctx.check()
                if entry.kind is EntryKind.DIR and entry.path:
                    self._stage.make_dir(entry.path)
                if entry.path == partial_path and entry.kind is EntryKind.FILE:
                    found = index
                if expected is None or entry.path != expected.path:
                    continue
                if expected.kind is MemberKind.FILE:
                    self._record_proved(pool)
                    pool.submit(self._adopt_file(earlier, index, entry, expected))
                else:
                    _check_link(entry, expected)  # made again by the copying: it has no bytes to save
                expected = next(members, None)
            self._record_proved(pool, all_of_them=True)
        finally:
            pool.close()
        if expected is not None:
            raise ProofFails(f"{show_name(expected.path)} was sealed, but is not in the listing at its place")
        return found

    def _adopt_file(
        self, earlier: EarlierStage, index: int, entry: Entry, member: SealedMember
    ) -> DigestCheck:
        if entry.kind is not EntryKind.FILE or entry.size != member.size:
            raise ProofFails(
                f"{show_name(entry.path)} was sealed with another size or kind than it is listed with"
            )
        fd = self._stage.adopt(earlier, entry.path, self._ctx.check)
        return DigestCheck(index, entry, member, fd, self._limits.chunk_bytes)

    def _record_proved(self, pool: WaitingPool[DigestCheck], *, all_of_them: bool = False) -> None:
        for check in pool.finished(self._ctx.check, all_of_them=all_of_them):
            if check.failure is not None:
                raise check.failure
            self._ledger.sealed(check.index, check.entry, check.mtime_ns, bytes.fromhex(check.member.sha256))
            self._ledger.report("adopting")

    def _adopt_partial(self, earlier: EarlierStage, partial: Mapping[str, Any], found: int | None) -> None:
        """Copy the beginning of the half-written file: the earlier attempt may still be writing to its
        own.
        """
        offset = partial["offset"]
        if found is None or not 0 < offset <= self._listing[found].size or self._ledger.log.get(found):
            raise ProofFails("the half-written file is not in the listing, or shorter than what was written")
        private = self._stage.new_private()
        fd = self._stage.open_private(private)
        adopted = PartialFile(found, private, fd, 0, hashlib.sha256())
        self._ledger.partial = adopted  # from here on the ledger closes it
        source_fd = earlier.open_partial(partial["private"].encode("ascii"), self._listing[found].path)
        try:
            if not stat.S_ISREG(os.fstat(source_fd).st_mode):
                raise ProofFails("the half-written file is no regular file")
            clone_range(source_fd, fd, offset, self._ctx.check)
        finally:
            os.close(source_fd)
        adopted.digest = _digest_of(fd, offset, self._limits.chunk_bytes, None, self._ctx)
        if adopted.digest.hexdigest() != partial["sha256"]:
            raise ProofFails("the half-written file does not begin with the bytes that were recorded")
        adopted.offset = offset


def _digest_of(
    fd: int, size: int, chunk_bytes: int, stop: Event | None, ctx: AttemptContext | None = None
) -> hashlib._Hash:
    digest, offset = hashlib.sha256(), 0
    while offset < size:
        if stop is not None and stop.is_set():
            raise Interrupted
        if ctx is not None:
            ctx.check()
        chunk = os.pread(fd, min(chunk_bytes, size - offset), offset)
        if not chunk:
            break  # shorter than it should be: the digest will not match
        digest.update(chunk)
        offset += len(chunk)
    return digest


def _check_link(entry: Entry, member: SealedMember) -> None:
    if entry.kind is not EntryKind.SYMLINK or link_digest(entry).hex() != member.sha256:
        raise ProofFails(f"{show_name(entry.path)} is not the link that was sealed")


def _read_proof(proof: Mapping[str, Any], listing: Listing) -> tuple[bytes | None, Mapping[str, Any] | None]:
    """The half-written file of a proof that fits this source; ProofFails if it does not, or cannot be
    read.
    """
    if proof.get("version") != PROOF_VERSION:
        raise ProofFails("the checkpoint's proof has a version that is not known here")
    if proof.get("source_identity") != listing.identity:
        raise ProofFails("the source is not what it was when the checkpoint was taken")
    partial = proof.get("partial")
    if partial is None:
        return None, None
    with suppress(KeyError, TypeError, ValueError, AttributeError):
        if (
            isinstance(partial["offset"], int)
            and partial["private"].isdecimal()
            and partial["private"].isascii()
        ):
            return decode_name("path", partial), partial
    raise ProofFails("the checkpoint's proof cannot be read")
