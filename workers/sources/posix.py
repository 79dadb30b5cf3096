"""A directory tree as the source of a transfer: listed once in a stable order, recognised again by its
identity, read file by file through descriptors.

The listing is spooled to a file and mapped, so that a million entries cost address space rather than memory.

Links are listed as links and never followed. Sockets, pipes and devices are listed as skipped.
"""

from __future__ import annotations

import errno
import hashlib
import mmap
import os
import struct
from array import array
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from workers.files.directories import DirTree, lstat, open_path
from workers.files.names import show_name
from workers.files.walk import Check, Entry, EntryKind, TreeChanged, walk
from workers.handlers.failures import (
    AttemptFailure,
    PermanentFailure,
    SourceChanged,
    failure_from,
)

READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_ROW: Final = struct.Struct("<BIIQqqQQI")
_SPOOL_BUFFER_BYTES: Final = 1 << 20


@dataclass(slots=True)
class Totals:
    entries: int = 0
    files: int = 0
    directories: int = 0
    symlinks: int = 0
    skipped: int = 0
    bytes: int = 0

    def add(self, entry: Entry) -> None:
        self.entries += 1
        match entry.kind:
            case EntryKind.FILE:
                self.files += 1
                self.bytes += entry.size
            case EntryKind.DIR:
                self.directories += 1
            case EntryKind.SYMLINK:
                self.symlinks += 1
            case EntryKind.SKIPPED:
                self.skipped += 1

    @property
    def members(self) -> int:
        """What the result holds; the root itself is no member of itself."""
        return self.files + self.directories - 1 + self.symlinks


class Listing:
    """All entries of a source, by index. Row 0 is the root."""

    def __init__(self, spool_fd: int, offsets: array[int], totals: Totals, identity: str) -> None:
        """Owns `spool_fd`, which has been written in full."""
        self.totals = totals
        self.identity = identity
        self._offsets = offsets
        self._spool_fd = spool_fd
        self._rows = mmap.mmap(spool_fd, 0, access=mmap.ACCESS_READ)

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, index: int) -> Entry:
        offset = self._offsets[index]
        kind, path_bytes, link_bytes, size, mtime, ctime, inode, device, mode = _ROW.unpack_from(
            self._rows, offset
        )
        start = offset + _ROW.size
        middle = start + path_bytes
        path, link = self._rows[start:middle], self._rows[middle : middle + link_bytes]
        return Entry(EntryKind(kind), path, link, size, mtime, ctime, inode, device, mode)

    def __iter__(self) -> Iterator[Entry]:
        return (self[index] for index in range(len(self)))

    def close(self) -> None:
        self._rows.close()
        os.close(self._spool_fd)


class PosixSource:
    """One source tree, open. Used by one thread; the descriptors it hands out may be read by others."""

    def __init__(self, root: str) -> None:
        try:
            self._tree = DirTree(open_path(root))
        except OSError as exc:
            raise failure_from(exc, f"source {show_name(root)}") from exc

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._tree.close()

    def list_into(self, spool_fd: int, never_enter: Collection[tuple[int, int]], check: Check) -> Listing:
        """List everything into an empty spool file, which the listing owns from then on.

        `never_enter`: (device, inode) of directories that must not lie in the source, such as the staging
        area.
        """
        totals, offsets, digest, devices = Totals(), array("Q"), hashlib.sha256(), _DeviceOrdinals()
        offset = 0
        with os.fdopen(os.dup(spool_fd), "wb", buffering=_SPOOL_BUFFER_BYTES) as spool:
            for entry in self._walk(check):
                if entry.kind is EntryKind.DIR and (entry.device, entry.inode) in never_enter:
                    raise PermanentFailure(f"the target lies inside the source, at {show_name(entry.path)}")
                row = _pack(entry, entry.device)
                digest.update(_pack(entry, devices.of(entry.device)))
                offsets.append(offset)
                offset += spool.write(row)
                totals.add(entry)
        return Listing(spool_fd, offsets, totals, digest.hexdigest())

    def _walk(self, check: Check) -> Iterator[Entry]:
        try:
            yield from walk(self._tree, check)
        except TreeChanged as exc:
            raise SourceChanged(f"source changed while it was listed, at {show_name(exc.path)}") from exc
        except OSError as exc:
            path = exc.filename if isinstance(exc.filename, bytes) else b""
            raise failure_from(exc, f"source {show_name(path)}") from exc

    def open_file(self, entry: Entry) -> int:
        """Open a listed file for reading and make sure it is what was listed."""
        try:
            dir_fd, name = self._tree.parent(entry.path)
            fd = os.open(name, READ_FLAGS, dir_fd=dir_fd)
        except OSError as exc:
            raise self.failure(entry, exc) from exc
        if entry.is_still(os.fstat(fd)):
            return fd
        os.close(fd)
        raise self.changed(entry)

    def changed(self, entry: Entry) -> AttemptFailure:
        """What to say of a file that is no longer what was listed: changed (try again), or gone (do not)."""
        try:
            dir_fd, name = self._tree.parent(entry.path)
            st = lstat(name, dir_fd)
        except (FileNotFoundError, NotADirectoryError):
            return PermanentFailure(f"source vanished: {show_name(entry.path)}")
        except OSError as exc:
            return failure_from(exc, f"source {show_name(entry.path)}")
        return SourceChanged(f"source changed: {show_name(entry.path)} {_difference(entry, st)}")

    def failure(self, entry: Entry, exc: OSError) -> AttemptFailure:
        """The failure that an OSError on reading this entry stands for."""
        if exc.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.EISDIR):
            return self.changed(entry)
        return failure_from(exc, f"source {show_name(entry.path)}")


def _pack(entry: Entry, device: int) -> bytes:
    numbers = (entry.size, entry.mtime_ns, entry.ctime_ns, entry.inode, device, entry.mode)
    header = _ROW.pack(entry.kind, len(entry.path), len(entry.link), *numbers)
    return header + entry.path + entry.link


class _DeviceOrdinals:
    """Devices numbered in order of appearance: the same shared file system has other numbers on other
    machines.
    """

    def __init__(self) -> None:
        self._ordinals: dict[int, int] = {}

    def of(self, device: int) -> int:
        return self._ordinals.setdefault(device, len(self._ordinals))


def _difference(entry: Entry, st: os.stat_result) -> str:
    if (st.st_ino, st.st_dev) != (entry.inode, entry.device):
        return "was replaced by another file"
    if st.st_size != entry.size:
        return f"had {entry.size} bytes when listed, now {st.st_size}"
    if st.st_mtime_ns != entry.mtime_ns:
        return "was written to since it was listed"
    return "was written to, or its attributes changed, since it was listed"
