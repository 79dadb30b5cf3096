"""What the demo transfers: files that every such machine has, and one large file made for the purpose.

Run as a program (`python -m remora_site.demo.source DIRECTORY`) so that it can be made while the servers
start, and can be stopped; it prints how much there is as one line of JSON.
"""

import json
import os
import random
import shutil
import stat
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

LARGE_FILE_MIB = 256
MIB = 1024 * 1024
PACKAGE_BYTES_MAX = 32 * MIB  # larger ones (browsers, server binaries) would only make the demo slower
LEFT_OUT = ("__pycache__", "test", "tests", "locale")  # as would thousands of tiny files more
SEED = 20
SHOWN_DIFFERENCES_MAX = 10


@dataclass(frozen=True, slots=True)
class TreeFacts:
    """How much there is."""

    files: int
    bytes: int


def build_source(root: Path) -> TreeFacts:
    """Copies of the standard library and of the installed packages, and a large file."""
    paths = sysconfig.get_paths()
    root.mkdir(parents=True)
    leave = shutil.ignore_patterns(*LEFT_OUT, "site-packages", "dist-packages")
    shutil.copytree(paths["stdlib"], root / "standard-library", symlinks=True, ignore=leave)
    _copy_packages(Path(paths["purelib"]), root / "site-packages")
    _write_large_file(root / "measurements.bin")
    return measure(root)


def measure(root: Path) -> TreeFacts:
    sizes = [status.st_size for _, status in _entries(root) if stat.S_ISREG(status.st_mode)]
    return TreeFacts(len(sizes), sum(sizes))


def differences(source: Path, result: Path) -> tuple[int, list[str]]:
    """Compare names, kinds, bytes, modes and times; how many were compared, and the first few differences."""
    theirs = dict(_entries(result))
    found: list[str] = []
    compared = 0
    for path, status in _entries(source):
        compared += 1
        other = theirs.pop(path, None)
        what = "missing" if other is None else _difference(source / path, status, result / path, other)
        if what and len(found) < SHOWN_DIFFERENCES_MAX:
            found.append(f"{path!r}: {what}")
    found += [f"{path!r}: not in the source" for path in list(theirs)[:SHOWN_DIFFERENCES_MAX]]
    return compared, found[:SHOWN_DIFFERENCES_MAX]


def _difference(path: Path, ours: os.stat_result, other_path: Path, theirs: os.stat_result) -> str:
    if stat.S_IFMT(ours.st_mode) != stat.S_IFMT(theirs.st_mode):
        return "another kind of file"
    if stat.S_ISLNK(ours.st_mode):
        return "" if os.readlink(path) == os.readlink(other_path) else "the link leads elsewhere"
    if stat.S_IMODE(ours.st_mode) != stat.S_IMODE(theirs.st_mode):
        return "the mode differs"
    if ours.st_mtime_ns != theirs.st_mtime_ns:
        return "the modification time differs"
    if stat.S_ISREG(ours.st_mode) and not _same_bytes(path, other_path):
        return "the bytes differ"
    return ""


def _same_bytes(one: Path, other: Path) -> bool:
    with one.open("rb") as left, other.open("rb") as right:
        while True:
            ours, theirs = left.read(MIB), right.read(MIB)
            if ours != theirs:
                return False
            if not ours:
                return True


def _entries(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Everything below `root`, by relative path; links are not followed."""
    waiting = [""]
    while waiting:
        below = waiting.pop()
        with os.scandir(root / below) as entries:
            for entry in entries:
                path = os.path.join(below, entry.name)
                status = entry.stat(follow_symlinks=False)
                yield path, status
                if stat.S_ISDIR(status.st_mode):
                    waiting.append(path)


def _copy_packages(packages: Path, target: Path) -> None:
    target.mkdir()
    leave = shutil.ignore_patterns(*LEFT_OUT)
    for entry in sorted(packages.iterdir()):
        if entry.name in LEFT_OUT:
            continue
        if not entry.is_dir():
            shutil.copy2(entry, target / entry.name, follow_symlinks=False)
        elif measure(entry).bytes <= PACKAGE_BYTES_MAX:
            shutil.copytree(entry, target / entry.name, symlinks=True, ignore=leave)


def _write_large_file(path: Path) -> None:
    chance = random.Random(SEED)
    with path.open("wb") as file:
        for _ in range(LARGE_FILE_MIB):
            file.write(chance.randbytes(MIB))


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(build_source(Path(sys.argv[1])))) + "\n")
