"""Staging on a POSIX directory: one attempt's own area, its members sealed into place, its manifest.

A member is *sealed* once it has been written under a private name, synced, given its mode and time, and
moved to its place without ever replacing anything. A sealed member never changes again, which is why a later
attempt may adopt it by a hard link: the two areas share the bytes, and the removal of one takes nothing from
the other.

Names become durable when `sync_names` has returned; only then may a checkpoint speak of them.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from workers.files.directories import (
    DIR_FLAGS,
    DirTree,
    empty_tree,
    lstat,
    rename_noreplace,
)
from workers.files.names import show_name
from workers.handlers.failures import AttemptFailure, failure_from
from workers.targets.area import FILES, MANIFEST, PARTIAL, Area

PRIVATE_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# Ownership is not kept, so a set-id bit would give the file's rights to whoever the worker runs as.
MODE_BITS_KEPT: Final = 0o1777
_CANNOT_LINK: Final = (errno.EPERM, errno.EXDEV, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS)
_CANNOT_CLONE: Final = (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)
_COPY_BYTES: Final = 8 << 20
# The area itself is gone, which says nothing about the job: another attempt has an area of its own.
_RETRYABLE_HERE: Final = frozenset({errno.ENOENT})


def target_failure(exc: OSError, path: bytes | None = None) -> AttemptFailure:
    """The failure that an OSError while writing stands for."""
    where = f"target, at {show_name(path)}" if path else "target"
    return failure_from(exc, where, retryable=_RETRYABLE_HERE)


class Stage:
    """One attempt's area, open for writing. Used by one thread, but for the private files' descriptors."""

    def __init__(self, area: Area) -> None:
        self.area = area
        self._area_fd = area.make()
        self.identity = _identity(self._area_fd)
        for name in (FILES, PARTIAL):
            os.mkdir(name, 0o700, dir_fd=self._area_fd)
        os.fsync(self._area_fd)
        self.files = DirTree(os.open(FILES, DIR_FLAGS, dir_fd=self._area_fd))
        self.partial_fd = os.open(PARTIAL, DIR_FLAGS, dir_fd=self._area_fd)
        self._last_private = 0
        self._unsynced: set[bytes] = set()
        self._partial_unsynced = False
        self._closed_dirs = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.files.close()
        os.close(self.partial_fd)
        os.close(self._area_fd)

    def new_private(self) -> bytes:
        """A private name that this attempt has not used yet."""
        self._last_private += 1
        return b"%d" % self._last_private

    def open_private(self, name: bytes) -> int:
        """A new empty private file. Its name outlives a crash once `sync_names` has returned."""
        self._partial_unsynced = True
        return os.open(name, PRIVATE_FLAGS, 0o600, dir_fd=self.partial_fd)

    def spool(self) -> int:
        """A file without a name, for what is too big for memory. It is gone when it is closed."""
        name = self.new_private()
        fd = os.open(name, PRIVATE_FLAGS, 0o600, dir_fd=self.partial_fd)
        os.unlink(name, dir_fd=self.partial_fd)
        return fd

    def make_dir(self, path: bytes) -> None:
        """Make a directory that its owner can fill; `finish_dir` gives it its mode and time."""
        if self.files.make(path):
            self._name_added(path)

    def make_symlink(self, path: bytes, text: bytes, mtime_ns: int) -> int:
        """Make a link as a link, which is sealed at once, having no bytes to tear; the mtime it really
        got.
        """
        dir_fd, name = self.files.parent(path)
        os.symlink(text, name, dir_fd=dir_fd)
        os.utime(name, ns=(mtime_ns, mtime_ns), dir_fd=dir_fd, follow_symlinks=False)
        self._name_added(path)
        return lstat(name, dir_fd).st_mtime_ns

    def seal(self, private: bytes, path: bytes) -> None:
        """Move a complete, synced private file to its place, where nothing may be yet."""
        dir_fd, name = self.files.parent(path)
        rename_noreplace(self.partial_fd, private, dir_fd, name)
        self._name_added(path)

    def sync_names(self) -> None:
        """Make every name given since the last call outlive a crash. FileNotFoundError if the area was
        removed.
        """
        if os.fstat(self._area_fd).st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, "the staging area was removed")
        if self._closed_dirs and os.geteuid() != 0:
            os.sync()  # a directory that its owner may not open cannot be synced by itself any more
            self._unsynced.clear()
        for path in self._unsynced:
            os.fsync(self.files.dir(path))
        self._unsynced.clear()
        if self._partial_unsynced:
            os.fsync(self.partial_fd)
            self._partial_unsynced = False

    def adopt(self, earlier: EarlierStage, path: bytes, check: Callable[[], None]) -> int:
        """Take a sealed member of an earlier attempt into this area; an open descriptor to prove it by.

        By hard link; where the file system cannot, by a copy of its own. What is there is not trusted yet.
        """
        source_fd, name = earlier.files.parent(path)
        dir_fd, _ = self.files.parent(path)
        try:
            os.link(name, name, src_dir_fd=source_fd, dst_dir_fd=dir_fd, follow_symlinks=False)
        except OSError as exc:
            if exc.errno not in _CANNOT_LINK:
                raise
            self._adopt_copy(earlier, path, check)
        self._name_added(path)
        return os.open(name, READ_FLAGS, dir_fd=dir_fd)

    def _adopt_copy(self, earlier: EarlierStage, path: bytes, check: Callable[[], None]) -> None:
        source_fd = earlier.open_member(path)
        private = self.new_private()
        try:
            fd = self.open_private(private)
            try:
                st = os.fstat(source_fd)
                clone_range(source_fd, fd, st.st_size, check)
                stamp(fd, st.st_mode, st.st_mtime_ns)
                os.fsync(fd)
            finally:
                os.close(fd)
        finally:
            os.close(source_fd)
        self.seal(private, path)

    def finish_dir(self, path: bytes, mode: int, mtime_ns: int) -> int:
        """Give a directory its final mode and time (after all it holds); the mtime it really got."""
        fd = self.files.dir(path)
        stamp(fd, mode, mtime_ns)
        self._unsynced.add(path)
        self._closed_dirs = self._closed_dirs or mode & 0o500 != 0o500
        return os.fstat(fd).st_mtime_ns

    def seal_manifest(self, private: bytes) -> None:
        """The last step: the manifest gets its name, and nothing private is left."""
        rename_noreplace(self.partial_fd, private, self._area_fd, MANIFEST)
        with DirTree(os.dup(self.partial_fd)) as partial:
            empty_tree(partial)
        os.rmdir(PARTIAL, dir_fd=self._area_fd)
        os.fsync(self._area_fd)

    def empty(self) -> None:
        """Forget everything staged so far; numbers of private names go on."""
        empty_tree(self.files)
        with DirTree(os.dup(self.partial_fd)) as partial:
            empty_tree(partial)
        self._unsynced.clear()
        self._partial_unsynced = True

    def _name_added(self, path: bytes) -> None:
        self._unsynced.add(path.rpartition(b"/")[0])


class EarlierStage:
    """An earlier attempt's area, open for reading, to adopt from. It may be cleaned while it is read."""

    def __init__(self, area: Area) -> None:
        area_fd = area.open()
        try:
            self.files = DirTree(os.open(FILES, DIR_FLAGS, dir_fd=area_fd))
            try:
                self._partial_fd = os.open(PARTIAL, DIR_FLAGS, dir_fd=area_fd)
            except FileNotFoundError:
                self._partial_fd = -1  # its manifest was sealed; there is nothing half-written
            except OSError:
                self.files.close()
                raise
        finally:
            os.close(area_fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.files.close()
        if self._partial_fd >= 0:
            os.close(self._partial_fd)

    def open_member(self, path: bytes) -> int:
        dir_fd, name = self.files.parent(path)
        return os.open(name, READ_FLAGS, dir_fd=dir_fd)

    def open_partial(self, private: bytes, path: bytes) -> int:
        """The half-written file, or what became of it: it may have been sealed after the checkpoint was
        taken.
        """
        if self._partial_fd >= 0:
            with suppress(FileNotFoundError):
                return os.open(private, READ_FLAGS, dir_fd=self._partial_fd)
        return self.open_member(path)


def stamp(fd: int, mode: int, mtime_ns: int) -> None:
    """Give an open file or directory its final permission bits and time."""
    os.fchmod(fd, stat.S_IMODE(mode) & MODE_BITS_KEPT)
    os.utime(fd, ns=(mtime_ns, mtime_ns))


def clone_range(source_fd: int, target_fd: int, size: int, check: Callable[[], None]) -> None:
    """Copy the first `size` bytes on the target's own side: shared blocks or in the kernel where it can."""
    done = 0
    while done < size:
        check()
        try:
            moved = os.copy_file_range(source_fd, target_fd, min(size - done, _COPY_BYTES), done, done)
        except OSError as exc:
            if exc.errno not in _CANNOT_CLONE:
                raise
            moved = os.pwrite(target_fd, os.pread(source_fd, min(size - done, _COPY_BYTES), done), done)
        if moved == 0:
            return  # shorter than it should be; whoever proves it will see
        done += moved


def _identity(fd: int) -> tuple[int, int]:
    st = os.fstat(fd)
    return st.st_dev, st.st_ino
