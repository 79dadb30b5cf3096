"""Copying: small files by several threads at once (their syncs overlap), large ones one at a time as a
stream.

Every byte is hashed as it is read, every file is compared with its listing before and after it was read, and
nothing gets its name before it is complete and synced. Memory in use: one chunk for each thread.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from threading import Event
from typing import TYPE_CHECKING, Final, TypeVar

from workers.files.directories import start_writing_back
from workers.files.walk import Entry, EntryKind
from workers.handlers.api import AttemptContext
from workers.handlers.failures import AttemptFailure
from workers.handlers.pool import Interrupted, WaitingPool
from workers.handlers.transfer_ledger import Ledger, PartialFile, TransferLimits, link_digest
from workers.sources.posix import Listing, PosixSource
from workers.targets.posix import Stage, stamp, target_failure

if TYPE_CHECKING:
    from hashlib import _Hash

T = TypeVar("T")
_buffers = threading.local()
_BLOCK_BYTES: Final = 512  # the unit of st_blocks


class SourceMoved(Exception):
    """The file is no longer what the listing said."""


class SourceUnreadable(Exception):
    """Reading failed; `__cause__` says how."""


class TargetUnwritable(Exception):
    """Writing failed; `__cause__` says how."""


def copy_range(
    source_fd: int, target_fd: int, start: int, end: int, digest: _Hash, chunk_bytes: int, sparse: bool,
    on_chunk: Callable[[int], None],
) -> None:  # fmt: skip
    """Copy and hash bytes [start, end), a chunk at a time. Holes stay holes if the caller has set the
    length.
    """
    buffer = _buffer(chunk_bytes)
    zeros = bytes(chunk_bytes) if sparse else b""
    offset = start
    while offset < end:
        window = buffer[: min(chunk_bytes, end - offset)]
        try:
            got = os.preadv(source_fd, [window], offset)
        except OSError as exc:
            raise SourceUnreadable from exc
        if got == 0:
            raise SourceMoved
        piece = window[:got]
        if not sparse or piece != zeros[:got]:
            write_all(target_fd, piece, offset)
        # Only what was written: a checkpoint taken because the writing failed names this digest.
        digest.update(piece)
        offset += got
        on_chunk(got)


def write_all(fd: int, piece: memoryview, offset: int) -> None:
    while piece:
        try:
            done = os.pwrite(fd, piece, offset)
        except OSError as exc:
            raise TargetUnwritable from exc
        piece, offset = piece[done:], offset + done


def is_sparse(st: os.stat_result) -> bool:
    return st.st_blocks * _BLOCK_BYTES < st.st_size


def _buffer(size: int) -> memoryview:
    held = getattr(_buffers, "buffer", None)
    if held is None or len(held) != size:
        held = _buffers.buffer = memoryview(bytearray(size))
    return held


class SmallCopy:
    """One small file, copied by a thread of the pool to a private name; `run` seals it afterwards."""

    def __init__(self, index: int, entry: Entry, source_fd: int, stage: Stage, chunk_bytes: int) -> None:
        self.index, self.entry = index, entry
        self.failure: Exception | None = None
        self.sent = 0
        self.private = stage.new_private()
        self.mtime_ns = 0
        self.sha256 = b""
        self._source_fd, self._target_fd = source_fd, -1
        self._stage, self._chunk_bytes = stage, chunk_bytes

    def work(self, stop: Event) -> None:
        def on_chunk(got: int) -> None:
            self.sent += got
            if stop.is_set():
                raise Interrupted

        if stop.is_set():
            raise Interrupted
        digest = hashlib.sha256()
        self._target_fd = fd = self._stage.open_private(self.private)
        sparse = is_sparse(os.fstat(self._source_fd))
        if sparse:
            os.ftruncate(fd, self.entry.size)
        copy_range(self._source_fd, fd, 0, self.entry.size, digest, self._chunk_bytes, sparse, on_chunk)
        self.mtime_ns = complete(fd, self._source_fd, self.entry)
        self.sha256 = digest.digest()

    def release(self) -> None:
        for fd in (self._source_fd, self._target_fd):
            if fd >= 0:
                os.close(fd)
        self._source_fd = self._target_fd = -1


def complete(target_fd: int, source_fd: int, entry: Entry) -> int:
    """Give the copy its mode and time, sync it, and look at the source once more; the mtime the copy got."""
    try:
        stamp(target_fd, entry.mode, entry.mtime_ns)
        os.fsync(target_fd)
    except OSError as exc:
        raise TargetUnwritable from exc
    if not entry.is_still(os.fstat(source_fd)):
        raise SourceMoved
    return os.fstat(target_fd).st_mtime_ns


class Copier:
    """Stages every row of the listing that is not sealed yet."""

    def __init__(
        self, ctx: AttemptContext, source: PosixSource, stage: Stage, listing: Listing, ledger: Ledger,
        limits: TransferLimits, parallelism: int,
    ) -> None:  # fmt: skip
        self._ctx, self._source, self._stage, self._listing = ctx, source, stage, listing
        self._ledger, self._limits, self._parallelism = ledger, limits, parallelism

    def run(self) -> None:
        if self._ledger.partial is not None:
            self._stream(self._ledger.partial)
        pool = WaitingPool[SmallCopy](self._parallelism)
        try:
            for index, entry in enumerate(self._listing):
                self._ctx.check()
                self._stage_row(index, entry, pool)
            self._seal_finished(pool, all_of_them=True)
        finally:
            self._account_for(pool.close())

    def _stage_row(self, index: int, entry: Entry, pool: WaitingPool[SmallCopy]) -> None:
        if entry.kind is EntryKind.DIR:
            if entry.path:
                self._on_target(entry, lambda: self._stage.make_dir(entry.path))
        elif entry.kind is EntryKind.SYMLINK:
            made = lambda: self._stage.make_symlink(entry.path, entry.link, entry.mtime_ns)  # noqa: E731
            self._ledger.sealed(index, entry, self._on_target(entry, made), link_digest(entry))
        elif entry.kind is EntryKind.FILE and self._ledger.log.get(index) is None:
            self._seal_finished(pool)
            if entry.size >= self._limits.stream_bytes_min:
                self._stream(self._begin_partial(index, entry))
            else:
                fd = self._source.open_file(entry)
                pool.submit(SmallCopy(index, entry, fd, self._stage, self._limits.chunk_bytes))

    def _seal_finished(self, pool: WaitingPool[SmallCopy], *, all_of_them: bool = False) -> None:
        for copy in pool.finished(self._ctx.check, all_of_them=all_of_them):
            self._ctx.count_sent(copy.sent)
            if copy.failure is not None:
                raise self._failure(copy.entry, copy.failure) from copy.failure
            self._seal(copy)
            self._ledger.report("copying")
            self._ledger.persist_if_due()

    def _seal(self, copy: SmallCopy) -> None:
        self._on_target(copy.entry, lambda: self._stage.seal(copy.private, copy.entry.path))
        self._ledger.sealed(copy.index, copy.entry, copy.mtime_ns, copy.sha256)

    def _account_for(self, left: list[SmallCopy]) -> None:
        """Copies that nobody took back: what they read was sent, and those that are whole need not be sent
        again.
        """
        for copy in left:
            self._ctx.count_sent(copy.sent)
            if copy.failure is None and copy.sha256:
                # Whatever ended the copying is what the attempt ends with, not what goes wrong after it.
                with suppress(AttemptFailure):
                    self._seal(copy)

    def _begin_partial(self, index: int, entry: Entry) -> PartialFile:
        private = self._stage.new_private()
        fd = self._on_target(entry, lambda: self._stage.open_private(private))
        self._ledger.partial = PartialFile(index, private, fd, 0, hashlib.sha256())
        return self._ledger.partial

    def _stream(self, partial: PartialFile) -> None:
        """Copy one large file, from where it was left, with checkpoints inside it."""
        entry = self._listing[partial.index]
        source_fd = self._source.open_file(entry)

        def on_chunk(got: int) -> None:
            start_writing_back(partial.fd, partial.offset, got)
            partial.offset += got
            self._ctx.count_sent(got)
            self._ledger.report("copying")
            self._ledger.persist_if_due()
            self._ctx.check()

        try:
            sparse = is_sparse(os.fstat(source_fd))
            if sparse:
                os.ftruncate(partial.fd, entry.size)
            copy_range(
                source_fd, partial.fd, partial.offset, entry.size, partial.digest, self._limits.chunk_bytes,
                sparse, on_chunk,
            )  # fmt: skip
            mtime_ns = complete(partial.fd, source_fd, entry)
        except (SourceMoved, SourceUnreadable, TargetUnwritable) as exc:
            raise self._failure(entry, exc) from exc
        finally:
            os.close(source_fd)
        self._on_target(entry, lambda: self._stage.seal(partial.private, entry.path))
        os.close(partial.fd)
        self._ledger.sealed(partial.index, entry, mtime_ns, partial.digest.digest())
        self._ledger.report("copying")
        self._ledger.persist_if_due()

    def _on_target(self, entry: Entry, act: Callable[[], T]) -> T:
        try:
            return act()
        except OSError as exc:
            raise target_failure(exc, entry.path) from exc

    def _failure(self, entry: Entry, exc: Exception) -> Exception:
        """What a failed copy means. Anything but these is a defect and goes on as it is."""
        if isinstance(exc, SourceMoved):
            return self._source.changed(entry)
        cause = exc if isinstance(exc, OSError) else exc.__cause__
        if not isinstance(cause, OSError):
            return exc
        if isinstance(exc, SourceUnreadable):
            return self._source.failure(entry, cause)
        return target_failure(cause, entry.path)
