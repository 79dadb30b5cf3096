"""Directories by descriptor: the only way this project touches a tree of somebody else's names.

Every call names one entry of one open directory and never follows a link, so
* no path is ever longer than one name (trees deeper than PATH_MAX work),
* no link planted anywhere below the root leads outside,
* a process whose directory was removed can create nothing: the descriptor it holds is dead.

Names and paths are bytes from end to end. Nothing here knows what a job is.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections import OrderedDict
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

DIR_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
OPEN_DIRECTORIES_MAX: Final = 64
REMOVAL_ROUNDS_MAX: Final = 1000
_RENAME_NOREPLACE: Final = 1
_SYNC_FILE_RANGE_WRITE: Final = 2
_NOREPLACE_UNKNOWN: Final = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)

_libc = ctypes.CDLL(None, use_errno=True)
_renameat2 = getattr(_libc, "renameat2", None)
_sync_file_range = getattr(_libc, "sync_file_range", None)


def split(path: bytes) -> tuple[bytes, bytes]:
    """Parent and name of a relative path; the parent of a top-level name is b""."""
    parent, _, name = path.rpartition(b"/")
    return parent, name


class DirTree:
    """Open directories below one root, found name by name without following links.

    Keeps the most recently used descriptors open, up to a bound. A returned descriptor is borrowed: it is
    valid until the next call. Not for use by two threads.
    """

    def __init__(self, root_fd: int) -> None:
        """Owns `root_fd` from now on."""
        self.root_fd = root_fd
        self._open: OrderedDict[bytes, int] = OrderedDict()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for fd in self._open.values():
            os.close(fd)
        self._open.clear()
        if self.root_fd >= 0:
            os.close(self.root_fd)
            self.root_fd = -1

    def dir(self, path: bytes) -> int:
        """The descriptor of that directory, or OSError (ENOTDIR or ELOOP where a link lies in the way)."""
        if not path:
            return self.root_fd
        known = self._open.get(path)
        if known is not None:
            self._open.move_to_end(path)
            return known
        names: list[bytes] = []
        ancestor = path
        while ancestor and ancestor not in self._open:
            ancestor, name = split(ancestor)
            names.append(name)
        fd = self._open[ancestor] if ancestor else self.root_fd
        while names:
            name = names.pop()
            ancestor = ancestor + b"/" + name if ancestor else name
            fd = self._keep(ancestor, os.open(name, DIR_FLAGS, dir_fd=fd))
        return fd

    def parent(self, path: bytes) -> tuple[int, bytes]:
        """Where an entry lies: the descriptor of its directory, and its name there."""
        parent, name = split(path)
        return self.dir(parent), name

    def make(self, path: bytes, mode: int = 0o700) -> bool:
        """Make that directory in its existing parent; False if a directory is already there."""
        fd, name = self.parent(path)
        try:
            os.mkdir(name, mode, dir_fd=fd)
        except FileExistsError:
            self.dir(path)  # raises if what is there is no directory
            return False
        return True

    def forget(self, path: bytes) -> None:
        """Close what is open at or below a path, because it is about to be removed or moved."""
        below = path + b"/"
        for known in [p for p in self._open if p == path or p.startswith(below)]:
            os.close(self._open.pop(known))

    def _keep(self, path: bytes, fd: int) -> int:
        self._open[path] = fd
        if len(self._open) > OPEN_DIRECTORIES_MAX:
            _, oldest = self._open.popitem(last=False)
            os.close(oldest)
        return fd


def open_path(path: str | bytes) -> int:
    """Open a directory that the user named; links in *that* path are the user's own and are followed."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def lstat(name: bytes, dir_fd: int) -> os.stat_result:
    return os.stat(name, dir_fd=dir_fd, follow_symlinks=False)


def names_in(fd: int) -> list[bytes]:
    return [os.fsencode(name) for name in os.listdir(fd)]


def rename_noreplace(src_fd: int, src: bytes, dst_fd: int, dst: bytes) -> None:
    """Move into place, atomically, never over something that is there (FileExistsError)."""
    if _renameat2 is not None:
        if _renameat2(src_fd, src, dst_fd, dst, _RENAME_NOREPLACE) == 0:
            return
        number = ctypes.get_errno()
        if number not in _NOREPLACE_UNKNOWN:
            raise OSError(number, os.strerror(number), dst)
    # A file system that does not know the flag: link refuses to replace, too.
    os.link(src, dst, src_dir_fd=src_fd, dst_dir_fd=dst_fd, follow_symlinks=False)
    os.unlink(src, dir_fd=src_fd)


def start_writing_back(fd: int, offset: int, size: int) -> None:
    """Ask the kernel to begin writing a range to the disk, so that a later sync finds little left. A hint."""
    if _sync_file_range is not None:
        _sync_file_range(fd, ctypes.c_int64(offset), ctypes.c_int64(size), _SYNC_FILE_RANGE_WRITE)


def remove_tree(parent_fd: int, name: bytes, check: Callable[[], None] = lambda: None) -> None:
    """Remove an entry and all below it. Idempotent; entries that vanish meanwhile are no error.

    Another writer may still be adding entries while this runs: a directory that is not empty when its turn
    comes is read again. Once the directory itself is gone, that writer's descriptors are dead and it can add
    nothing.
    """
    for _ in range(REMOVAL_ROUNDS_MAX):
        check()
        try:
            fd = _open_for_removal(parent_fd, name)
        except FileNotFoundError:
            return
        except OSError as exc:
            if exc.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            _unlink(parent_fd, name)
            return
        with DirTree(fd) as tree:
            empty_tree(tree, check)
        if _rmdir(parent_fd, name):
            return
    raise OSError(errno.ENOTEMPTY, "another writer keeps adding entries", name)


def empty_tree(tree: DirTree, check: Callable[[], None] = lambda: None) -> None:
    """Remove all below the root, without recursion: a path stays on the stack until its directory is gone."""
    stack = [b""]
    while stack:
        check()
        path = stack[-1]
        try:
            found = _remove_files(tree.dir(path))
        except FileNotFoundError:
            found = []
        if found:
            stack.extend(path + b"/" + name if path else name for name in found)
            continue
        stack.pop()
        if not path:
            continue
        tree.forget(path)
        parent_fd, name = tree.parent(path)
        if not _rmdir(parent_fd, name):
            stack.append(path)


def _remove_files(fd: int) -> list[bytes]:
    """Unlink all that is no directory; return the directories, made writable so that they can be emptied."""
    directories = []
    for name in names_in(fd):
        try:
            os.unlink(name, dir_fd=fd)
        except FileNotFoundError:
            continue
        except (IsADirectoryError, PermissionError):
            if _made_writable(fd, name):
                directories.append(name)
    return directories


def _made_writable(fd: int, name: bytes) -> bool:
    """False if it has vanished; the PermissionError being handled goes on if it is no directory."""
    try:
        if not stat.S_ISDIR(lstat(name, fd).st_mode):
            raise
        os.close(_open_for_removal(fd, name))
    except FileNotFoundError:
        return False
    return True


def _rmdir(fd: int, name: bytes) -> bool:
    """True once it is gone; False if somebody has put something into it."""
    try:
        os.rmdir(name, dir_fd=fd)
    except FileNotFoundError:
        return True
    except OSError as exc:
        if exc.errno != errno.ENOTEMPTY:
            raise
        return False
    return True


def _unlink(fd: int, name: bytes) -> None:
    try:
        os.unlink(name, dir_fd=fd)
    except FileNotFoundError:
        return


def _open_for_removal(parent_fd: int, name: bytes) -> int:
    """Open a directory and make sure its owner may list and empty it (a user's tree may hold mode 000)."""
    try:
        fd = os.open(name, DIR_FLAGS, dir_fd=parent_fd)
    except PermissionError:
        pinned = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent_fd)
        try:
            os.chmod(f"/proc/self/fd/{pinned}", 0o700)
        finally:
            os.close(pinned)
        fd = os.open(name, DIR_FLAGS, dir_fd=parent_fd)
    if os.fstat(fd).st_mode & 0o700 != 0o700:
        os.fchmod(fd, 0o700)
    return fd
