"""One stable order over a tree, and what is known of each entry in it.

The order is bytewise by path where a directory counts as `path + "/"`: every directory comes right before
what it holds, and the paths of files and links alone are in plain bytewise order.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from workers.files.directories import DirTree, lstat

Check = Callable[[], None]


class TreeChanged(Exception):
    """The tree was written to while it was walked."""

    def __init__(self, path: bytes) -> None:
        super().__init__("the tree changed while it was walked")
        self.path = path


class EntryKind(IntEnum):
    DIR = 1
    FILE = 2
    SYMLINK = 3
    SKIPPED = 4


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry as it was when listed. `link` is the text of a symbolic link; the root has the path b""."""

    kind: EntryKind
    path: bytes
    link: bytes
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    device: int
    mode: int

    def is_still(self, st: os.stat_result) -> bool:
        """Whether a later stat shows the same, unmodified file. ctime sees what a restored mtime hides."""
        return (
            (st.st_size, st.st_mtime_ns, st.st_ctime_ns) == (self.size, self.mtime_ns, self.ctime_ns)
            and (st.st_ino, st.st_dev, st.st_mode) == (self.inode, self.device, self.mode)
        )  # fmt: skip

    @property
    def special(self) -> str:
        """What kind of special file a skipped entry is."""
        kinds = {
            stat.S_IFIFO: "fifo",
            stat.S_IFSOCK: "socket",
            stat.S_IFCHR: "device",
            stat.S_IFBLK: "device",
        }
        return kinds.get(stat.S_IFMT(self.mode), "unknown")


def walk(tree: DirTree, check: Check) -> Iterator[Entry]:
    """Every entry below (and first of all) the root, in listing order, without recursion."""
    yield _entry(b"", os.fstat(tree.root_fd), b"")
    stack: list[tuple[bytes, Iterator[bytes]]] = [(b"", iter(_sorted_keys(tree, b"")))]
    while stack:
        check()
        parent, keys = stack[-1]
        key = next(keys, None)
        if key is None:
            stack.pop()
            continue
        entry = _read_entry(tree, parent, key)
        yield entry
        if entry.kind is EntryKind.DIR:
            stack.append((entry.path, iter(_sorted_keys(tree, entry.path))))


def _sorted_keys(tree: DirTree, path: bytes) -> list[bytes]:
    """Names in one directory, those of directories with a "/" at the end, bytewise."""
    try:
        with os.scandir(tree.dir(path)) as found:
            return sorted(
                os.fsencode(entry.name) + (b"/" if entry.is_dir(follow_symlinks=False) else b"")
                for entry in found
            )
    except (FileNotFoundError, NotADirectoryError) as exc:
        raise TreeChanged(path) from exc
    except OSError as exc:
        exc.filename = path
        raise


def _read_entry(tree: DirTree, parent: bytes, key: bytes) -> Entry:
    name = key.removesuffix(b"/")
    path = parent + b"/" + name if parent else name
    try:
        dir_fd = tree.dir(parent)
        st = lstat(name, dir_fd)
        link = os.readlink(name, dir_fd=dir_fd) if stat.S_ISLNK(st.st_mode) else b""
    except (FileNotFoundError, NotADirectoryError) as exc:
        raise TreeChanged(path) from exc
    except OSError as exc:
        if exc.errno == errno.EINVAL:  # readlink of what was a link a moment ago
            raise TreeChanged(path) from exc
        exc.filename = path
        raise
    entry = _entry(path, st, link)
    if (entry.kind is EntryKind.DIR) != key.endswith(b"/"):
        raise TreeChanged(path)
    return entry


def _entry(path: bytes, st: os.stat_result, link: bytes) -> Entry:
    kinds = {stat.S_IFREG: EntryKind.FILE, stat.S_IFDIR: EntryKind.DIR, stat.S_IFLNK: EntryKind.SYMLINK}
    kind = kinds.get(stat.S_IFMT(st.st_mode), EntryKind.SKIPPED)
    return Entry(
        kind, path, link, st.st_size, st.st_mtime_ns, st.st_ctime_ns, st.st_ino, st.st_dev, st.st_mode
    )
