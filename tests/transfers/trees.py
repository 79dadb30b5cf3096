"""Trees for transfers to move, and what lies in a directory, byte for byte."""

from __future__ import annotations

import hashlib
import os
import random
import stat
from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB

AWKWARD_NAMES = (
    b"caf\xc3\xa9.bin", b"cafe\xcc\x81.bin", b"new\nline.bin", b"tab\there", b"cr\rname", b" leading",
    b"trailing ",
    b"-rf", b"--help", b"...", b"..dots", b"back\\slash", b"%2e%2e%2fescape", b"glob*star", b"$(id)",
    b"bad\xff\xfeutf8.bin", b"latin1-\xf1.txt", b"surr-\xed\xa0\x80.txt", "rtl-\u202etxt.exe".encode(),
    b"UPPER.txt", b"upper.txt", b"null", b"NaN", b"0", b"1", b"manifest.json", b"partial", b"files",
    b"data.bin",
    b"data.bin.part", b".part", b"attempt-1", b"_SUCCESS", b"n" * 255, b"k" * 246 + b".bin", b"a", b"a-b",
    b"a.b",
)  # fmt: skip


@dataclass(frozen=True)
class Found:
    """One entry as it lies there. Modes are without the set-id bits, which a transfer drops."""

    kind: str
    mode: int
    mtime_ns: int
    content: str


def body(name: bytes, size: int) -> bytes:
    """Contents as a function of name and size: a mix-up of two files shows."""
    return random.Random(name + b"%d" % size).randbytes(size)


def put(
    root: str, path: bytes, size: int, mode: int = 0o644, mtime_ns: int = 1_500_000_000_123_456_789
) -> bytes:
    full = os.path.join(os.fsencode(root), path)
    os.makedirs(os.path.dirname(full), exist_ok=True)
    with open(full, "wb") as out:
        out.write(body(path, size))
    os.chmod(full, mode)
    os.utime(full, ns=(mtime_ns, mtime_ns))
    return full


def link(root: str, path: bytes, text: bytes) -> None:
    full = os.path.join(os.fsencode(root), path)
    os.makedirs(os.path.dirname(full), exist_ok=True)
    os.symlink(text, full)


def make_dir(root: str, path: bytes, mode: int = 0o755) -> None:
    full = os.path.join(os.fsencode(root), path)
    os.makedirs(full, exist_ok=True)
    os.chmod(full, mode)


def make_awkward(root: str) -> None:
    for name in AWKWARD_NAMES:
        put(root, b"names/" + name, 40 + len(name))
    put(root, b"names/dir with\nnewline/inner", 10)
    put(root, b"names/\xff\xfe-dir/inner", 10)
    put(root, b"attempt-1/x", 12)
    put(root, b"a/b", 5)
    for i in range(4):
        put(root, b"long/" + b"s" * 236 + b"-%03d.dat" % i, 48)


def make_links(root: str) -> None:
    put(root, b"links/real.txt", 100)
    put(root, b"links/sub/inner.txt", 50)
    for path, text in (
        (b"links/inside", b"real.txt"), (b"links/abs-outside", b"/etc/hostname"), (b"links/dangling",
        b"no-such"),
        (b"links/rel-outside", b"../../../../../../etc/hostname"), (b"links/self", b"self"),
        (b"links/sub/parent", b".."), (b"links/dirlink", b"sub"), (b"links/odd", b"bad\xff\nname"),
    ):  # fmt: skip
        link(root, path, text)
    os.link(os.path.join(root, "links/real.txt"), os.path.join(root, "links/hard"))


USUAL_BYTES = 5000 + sum(1000 * i for i in range(30)) + 700 * KIB + 13 + 300 * KIB + 6 * 10 + 2 * 100 + 50


def make_usual(root: str) -> None:
    """Some of everything: small and large files, empty ones, empty directories, links, odd modes and
    times.
    """
    for i in range(30):
        put(root, b"small/%02d/%03d.bin" % (i % 4, i), 1000 * i, mtime_ns=1_600_000_000_000_000_001 + i)
    put(root, b"large/one.bin", 700 * KIB + 13)
    put(root, b"large/two.bin", 300 * KIB, mode=0o600)
    put(root, b"modes/exec", 10, mode=0o755)
    put(root, b"modes/secret", 10, mode=0o400)
    put(root, b"modes/none", 10, mode=0o444)
    put(root, b"times/old", 10, mtime_ns=0)
    put(root, b"times/before", 10, mtime_ns=-1_000_000_001)
    put(root, b"times/future", 10, mtime_ns=4_102_444_800_000_000_000)
    put(root, b"zero", 0)
    put(root, b"early/first", 5000)
    make_dir(root, b"empty/a/b", 0o700)
    make_dir(root, b"closed", 0o555)
    make_links(root)


def snapshot(root: str | bytes) -> dict[bytes, Found]:
    """Everything below a directory (not itself), by descriptors, so that depth does not matter."""
    found: dict[bytes, Found] = {}
    _look(os.open(root, os.O_RDONLY | os.O_DIRECTORY), b"", found)
    return found


def _look(fd: int, prefix: bytes, found: dict[bytes, Found]) -> None:
    try:
        for name in sorted(os.fsencode(entry) for entry in os.listdir(fd)):
            st = os.stat(name, dir_fd=fd, follow_symlinks=False)
            found[prefix + name] = Found(_kind(st), _mode(st), st.st_mtime_ns, _content(fd, name, st))
            if stat.S_ISDIR(st.st_mode):
                _look(os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd), prefix + name + b"/", found)
    finally:
        os.close(fd)


def _kind(st: os.stat_result) -> str:
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFLNK: "symlink"}
    return kinds.get(stat.S_IFMT(st.st_mode), "special")


def _mode(st: os.stat_result) -> int:
    return st.st_mode & 0o1777


def _content(fd: int, name: bytes, st: os.stat_result) -> str:
    if stat.S_ISLNK(st.st_mode):
        return os.readlink(name, dir_fd=fd).hex()
    if not stat.S_ISREG(st.st_mode):
        return ""
    with open(os.open(name, os.O_RDONLY, dir_fd=fd), "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
