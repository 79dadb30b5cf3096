"""The manifest: what a result consists of, and whose it is. Its digest is what AcceptSuccess commits.

One JSON document (UTF-8, keys sorted, no blanks, no NaN) whose line breaks are part of the format, so that
any JSON parser can read it whole and this module can write and read it in constant memory, a member at a
time:

    {"attempt_id":…,"format":1,"job_id":…,"members":[
    {"kind":"dir","mode":493,"mtime_ns":…,"path":"a"},
    {"kind":"file","mode":420,"mtime_ns":…,"path":"a/b","sha256":"…","size":5}
    ],"skipped":[
    ],"source_identity":"…","token":2,"totals":{…}}

Members come in listing order: bytewise by path, a directory counting as its path with "/" behind it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

from workers.files.names import decode_name, encode_name
from workers.handlers.api import ManifestDescriptor, MemberKind

FORMAT: Final = 1
LINE_BYTES_MAX: Final = 16 << 20
_BUFFER_BYTES: Final = 1 << 20


class ResultDamaged(Exception):
    """The stored manifest is not the one that was committed, or not a manifest."""


@dataclass(frozen=True, slots=True)
class ManifestHeader:
    """Whose result it is, and of what."""

    job_id: str
    attempt_id: str
    token: int
    source_identity: str


@dataclass(frozen=True, slots=True)
class ManifestMember:
    """One member. `size` and `sha256` are of a file, `link_target` of a symbolic link."""

    path: bytes
    kind: MemberKind
    mode: int
    mtime_ns: int
    size: int = 0
    sha256: str = ""
    link_target: bytes = b""

    def as_json(self) -> dict[str, Any]:
        row: dict[str, Any] = {"kind": self.kind.value, "mode": self.mode, "mtime_ns": self.mtime_ns}
        row |= encode_name("path", self.path)
        if self.kind is MemberKind.FILE:
            row |= {"size": self.size, "sha256": self.sha256}
        if self.kind is MemberKind.SYMLINK:
            row |= encode_name("link_target", self.link_target)
        return row

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> ManifestMember:
        kind = MemberKind(row["kind"])
        link = decode_name("link_target", row) if kind is MemberKind.SYMLINK else b""
        path = decode_name("path", row)
        if not is_member_path(path):
            raise ValueError("a member path leads out of the result")
        return cls(path, kind, row["mode"], row["mtime_ns"], row.get("size", 0), row.get("sha256", ""), link)


@dataclass(frozen=True, slots=True)
class SkippedEntry:
    """What the source held and the result does not, and why."""

    path: bytes
    why: str


def is_member_path(path: bytes) -> bool:
    """Relative, without empty, "." or ".." names, without NUL."""
    names = path.split(b"/")
    return b"\0" not in path and not any(name in (b"", b".", b"..") for name in names)


def canonical(value: Mapping[str, Any]) -> bytes:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")


def write_manifest(
    fd: int,
    header: ManifestHeader,
    members: Iterable[ManifestMember],
    skipped: Iterable[SkippedEntry],
    location: str,
) -> ManifestDescriptor:
    """Write and sync the whole document to an empty file, and describe it as stored at `location`."""
    digest, size, count, total_bytes, skips = hashlib.sha256(), 0, 0, 0, 0

    def put(data: bytes) -> None:
        nonlocal size
        digest.update(data)
        size += out.write(data)

    opening = {"attempt_id": header.attempt_id, "format": FORMAT, "job_id": header.job_id}
    with os.fdopen(os.dup(fd), "wb", buffering=_BUFFER_BYTES) as out:
        put(canonical(opening)[:-1] + b',"members":[')
        for member in members:
            put((b",\n" if count else b"\n") + canonical(member.as_json()))
            count += 1
            total_bytes += member.size
        put(b'\n],"skipped":[')
        for skip in skipped:
            put((b",\n" if skips else b"\n") + canonical(encode_name("path", skip.path) | {"why": skip.why}))
            skips += 1
        closing = {
            "source_identity": header.source_identity,
            "token": header.token,
            "totals": {"bytes": total_bytes, "members": count, "skipped": skips},
        }
        put(b"\n]," + canonical(closing)[1:] + b"\n")
    os.fsync(fd)
    return ManifestDescriptor(digest.hexdigest(), size, count, total_bytes, location)


def check_digest(fd: int, descriptor: ManifestDescriptor) -> None:
    """ResultDamaged unless the stored bytes are those that were committed. Leaves the file at its start."""
    digest, size = hashlib.sha256(), 0
    os.lseek(fd, 0, os.SEEK_SET)
    while chunk := os.read(fd, _BUFFER_BYTES):
        digest.update(chunk)
        size += len(chunk)
    os.lseek(fd, 0, os.SEEK_SET)
    if (digest.hexdigest(), size) != (descriptor.digest, descriptor.size):
        raise ResultDamaged("manifest.json is not the manifest that was committed")


def read_members(fd: int) -> Iterator[ManifestMember]:
    """Every member, in order; ResultDamaged at the first line that is none."""
    os.lseek(fd, 0, os.SEEK_SET)
    with os.fdopen(os.dup(fd), "rb", buffering=_BUFFER_BYTES) as lines:
        opening = _line(lines)
        if not opening.endswith(b'"members":['):
            raise ResultDamaged("manifest.json does not begin like a manifest")
        while not (line := _line(lines)).startswith(b'],"skipped":['):
            try:
                yield ManifestMember.from_json(json.loads(line.removesuffix(b",")))
            except (ValueError, KeyError, TypeError) as exc:
                raise ResultDamaged(
                    f"manifest.json holds a line that is no member: {type(exc).__name__}"
                ) from exc


def _line(lines: BinaryIO) -> bytes:
    line = lines.readline(LINE_BYTES_MAX)
    if not line.endswith(b"\n"):
        raise ResultDamaged("manifest.json ends early")
    return line[:-1]
