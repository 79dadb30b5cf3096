"""What a transfer has staged so far, and when and how it is made a checkpoint.

The ledger counts bytes of sealed files plus what lies in the one large file that is half-written. A
checkpoint is taken in this order: sync the half-written file, sync the names given since the last one, and
only then let the durable store speak of them.
"""

from __future__ import annotations

import hashlib
import os
import struct
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, overload

from workers.files.names import encode_name
from workers.files.walk import Entry, EntryKind
from workers.handlers.api import AttemptContext, MemberKind, SealedMember
from workers.sources.posix import Listing
from workers.targets.posix import MODE_BITS_KEPT, Stage, target_failure

if TYPE_CHECKING:
    from hashlib import _Hash

PROOF_VERSION: Final = 1
_SEAL: Final = struct.Struct("<?q32s")

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferLimits:
    """How much may be lost, and how much is held, at any time."""

    checkpoint_bytes: int = 64 << 20
    checkpoint_s: float = 5.0
    chunk_bytes: int = 1 << 20
    stream_bytes_min: int = 8 << 20
    """Files from this size on are copied one at a time, with checkpoints inside them."""


@dataclass(slots=True)
class PartialFile:
    """The one file that is half-written: its row, its private name, and the digest of what is there."""

    index: int
    private: bytes
    fd: int
    offset: int
    digest: _Hash


class SealLog:
    """The digest and mtime of every sealed member by its row, in a file: a million of them need no memory."""

    def __init__(self, spool_fd: int, rows: int) -> None:
        """Owns `spool_fd`."""
        self._fd = spool_fd
        self._rows = rows
        self.clear()

    def clear(self) -> None:
        os.ftruncate(self._fd, 0)
        os.ftruncate(self._fd, self._rows * _SEAL.size)

    def put(self, index: int, mtime_ns: int, sha256: bytes) -> None:
        os.pwrite(self._fd, _SEAL.pack(True, mtime_ns, sha256), index * _SEAL.size)

    def get(self, index: int) -> tuple[int, bytes] | None:
        sealed, mtime_ns, sha256 = _SEAL.unpack(os.pread(self._fd, _SEAL.size, index * _SEAL.size))
        return (mtime_ns, sha256) if sealed else None

    def close(self) -> None:
        os.close(self._fd)


class SealedRows(Sequence[SealedMember]):
    """Sealed members by row, read when asked for: a checkpoint may name a million."""

    def __init__(self, listing: Listing, log: SealLog, rows: array[int]) -> None:
        self._listing, self._log, self._row_numbers = listing, log, rows

    def __len__(self) -> int:
        return len(self._row_numbers)

    @overload
    def __getitem__(self, at: int) -> SealedMember: ...
    @overload
    def __getitem__(self, at: slice) -> SealedRows: ...
    def __getitem__(self, at: int | slice) -> SealedMember | SealedRows:
        if isinstance(at, slice):
            return SealedRows(self._listing, self._log, self._row_numbers[at])
        index = self._row_numbers[at]
        entry, sealed = self._listing[index], self._log.get(index)
        if sealed is None:
            raise LookupError(f"row {index} is not sealed")
        mtime_ns, sha256 = sealed
        kind = MemberKind.SYMLINK if entry.kind is EntryKind.SYMLINK else MemberKind.FILE
        size = entry.size if kind is MemberKind.FILE else 0
        return SealedMember(entry.path, kind, size, sha256.hex(), kept_mode(entry), mtime_ns)

    def __iter__(self) -> Iterator[SealedMember]:
        return (self[at] for at in range(len(self)))


class Ledger:
    """Counts what is staged, reports it, and persists it when it is time."""

    def __init__(
        self, ctx: AttemptContext, stage: Stage, listing: Listing, limits: TransferLimits, clock: Clock
    ) -> None:
        self._ctx, self._stage, self._listing, self._limits, self._clock = ctx, stage, listing, limits, clock
        self.log = SealLog(stage.spool(), len(listing))
        self.partial: PartialFile | None = None
        self._sealed_bytes = 0
        self._unsaved = array("Q")
        self._saved_progress = 0
        self._saved_at = clock()
        self._adopted = False

    @property
    def progress(self) -> int:
        return self._sealed_bytes + (self.partial.offset if self.partial else 0)

    @property
    def unsaved_bytes(self) -> int:
        return self.progress - self._saved_progress

    def sealed(self, index: int, entry: Entry, mtime_ns: int, sha256: bytes) -> None:
        """A file or link is in its place and will not change again."""
        self.log.put(index, mtime_ns, sha256)
        self._unsaved.append(index)
        if self.partial is not None and self.partial.index == index:
            self.partial = None
        if entry.kind is EntryKind.FILE:
            self._sealed_bytes += entry.size

    def adopted(self) -> None:
        """All of an earlier checkpoint is this attempt's own now, but recorded as the earlier attempt's.

        So the first progress beyond it is made a checkpoint at once, under this attempt's own name.
        """
        self._saved_progress = self.progress
        self._adopted = True

    def reset(self) -> None:
        """Nothing is staged: the attempt starts from zero."""
        self.close_partial()
        self.log.clear()
        self._sealed_bytes = self._saved_progress = 0
        self._unsaved = array("Q")
        self._saved_at = self._clock()
        self._adopted = False

    def report(self, phase: str) -> None:
        self._ctx.advance(self.progress, self._listing.totals.bytes, phase)

    def persist_if_due(self) -> None:
        gained = self.unsaved_bytes
        aged = self._clock() - self._saved_at >= self._limits.checkpoint_s
        if gained > 0 and (gained >= self._limits.checkpoint_bytes or aged or self._adopted):
            self.persist()

    def persist(self) -> None:
        """Make all that is staged a checkpoint. Nothing happens unless there is progress to record."""
        if self.unsaved_bytes <= 0:
            return
        try:
            partial = self._partial_proof()
            self._stage.sync_names()
        except OSError as exc:
            raise target_failure(exc) from exc
        totals = self._listing.totals
        proof = {
            "version": PROOF_VERSION,
            "source_identity": self._listing.identity,
            "entries": totals.entries,
            "bytes": totals.bytes,
            "partial": partial,
        }
        progress = self.progress
        self._ctx.persist_checkpoint(progress, proof, SealedRows(self._listing, self.log, self._unsaved))
        self._unsaved = array("Q")
        self._saved_progress, self._saved_at = progress, self._clock()
        self._adopted = False

    def close_partial(self) -> None:
        if self.partial is not None:
            os.close(self.partial.fd)
            self.partial = None

    def close(self) -> None:
        self.close_partial()
        self.log.close()

    def _partial_proof(self) -> dict[str, Any] | None:
        partial = self.partial
        if partial is None or partial.offset == 0:
            return None
        os.fsync(partial.fd)
        return {
            **encode_name("path", self._listing[partial.index].path),
            "offset": partial.offset,
            "sha256": partial.digest.copy().hexdigest(),
            "private": partial.private.decode("ascii"),
        }


def kept_mode(entry: Entry) -> int:
    """The permission bits that a member of the result has."""
    return entry.mode & MODE_BITS_KEPT


def link_digest(entry: Entry) -> bytes:
    return hashlib.sha256(entry.link).digest()
