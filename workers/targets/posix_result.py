"""Reading a finished result on a POSIX target: proving it against its manifest, and copying it out.

The manifest is proved first, by the digest that was committed; then everything is judged by it. A file that
the manifest does not name is as much a problem as one that is missing.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, suppress

from workers.files.directories import DIR_FLAGS, DirTree, names_in, open_path
from workers.files.names import show_name
from workers.files.walk import Entry, EntryKind, TreeChanged, walk
from workers.handlers.api import FetchProgress, ManifestDescriptor, MemberKind, Problem
from workers.targets.area import FILES, MANIFEST, Area, NotAnArea
from workers.targets.manifest import ManifestMember, ResultDamaged, check_digest, read_members
from workers.targets.posix import MODE_BITS_KEPT, READ_FLAGS, stamp

_CHUNK_BYTES = 1 << 20
_KINDS = {
    EntryKind.FILE: MemberKind.FILE,
    EntryKind.DIR: MemberKind.DIR,
    EntryKind.SYMLINK: MemberKind.SYMLINK,
}


def verify(descriptor: ManifestDescriptor) -> Iterator[Problem]:
    """Every way in which what is stored differs from what was committed; nothing if it is whole."""
    try:
        with _open_result(descriptor) as (manifest_fd, files):
            yield from _compare(files, read_members(manifest_fd))
    except (OSError, NotAnArea, ResultDamaged) as exc:
        what = exc.strerror if isinstance(exc, OSError) and exc.strerror else str(exc)
        yield Problem("manifest.json", what)


def fetch(descriptor: ManifestDescriptor, dest: str, progress: FetchProgress) -> None:
    """Copy the result's members into a new or empty directory, proving each by its digest.

    FileExistsError if something is there already, ResultDamaged if a member is not what was committed.
    """
    os.makedirs(dest, exist_ok=True)
    dest_fd = open_path(dest)
    if names_in(dest_fd):
        os.close(dest_fd)
        raise FileExistsError(errno.EEXIST, "the directory is not empty", dest)
    done = 0
    with DirTree(dest_fd) as out, _open_result(descriptor) as (manifest_fd, files):
        progress(0, descriptor.bytes)
        directories = []
        for member in read_members(manifest_fd):
            if member.kind is MemberKind.DIR:
                out.make(member.path)
                directories.append(member)
            elif member.kind is MemberKind.SYMLINK:
                dir_fd, name = out.parent(member.path)
                os.symlink(member.link_target, name, dir_fd=dir_fd)
                os.utime(name, ns=(member.mtime_ns, member.mtime_ns), dir_fd=dir_fd, follow_symlinks=False)
            else:
                for count in _fetch_file(files, out, member):
                    done += count
                    progress(done, descriptor.bytes)
        for member in reversed(directories):
            stamp(out.dir(member.path), member.mode, member.mtime_ns)


@contextmanager
def _open_result(descriptor: ManifestDescriptor) -> Iterator[tuple[int, DirTree]]:
    """The proved manifest, and the tree that it speaks of."""
    area_fd = Area.parse(descriptor.location).open()
    try:
        manifest_fd = os.open(MANIFEST, READ_FLAGS, dir_fd=area_fd)
        try:
            check_digest(manifest_fd, descriptor)
            with DirTree(os.open(FILES, DIR_FLAGS, dir_fd=area_fd)) as files:
                yield manifest_fd, files
        finally:
            os.close(manifest_fd)
    finally:
        os.close(area_fd)


def _compare(files: DirTree, members: Iterator[ManifestMember]) -> Iterator[Problem]:
    """Walk the tree and the manifest side by side: both are in the same order."""
    with closing(_entries(files)) as entries:
        entry, member = next(entries, None), next(members, None)
        while entry is not None or member is not None:
            if isinstance(entry, Problem):
                yield entry
                return
            if member is None or (entry is not None and _entry_key(entry) < _member_key(member)):
                assert entry is not None  # noqa: S101 (for the type checker: the loop runs while one is left)
                yield Problem(show_name(entry.path), "is not in the manifest")
                entry = next(entries, None)
            elif entry is None or _member_key(member) < _entry_key(entry):
                yield Problem(show_name(member.path), "is missing, or of another kind")
                member = next(members, None)
            else:
                for what in _differences(files, entry, member):
                    yield Problem(show_name(member.path), what)
                entry, member = next(entries, None), next(members, None)


def _entries(files: DirTree) -> Generator[Entry | Problem, None, None]:
    try:
        for entry in walk(files, lambda: None):
            if entry.path:
                yield entry
    except TreeChanged as exc:
        yield Problem(show_name(exc.path), "changed while it was looked at")
    except OSError as exc:
        path = exc.filename if isinstance(exc.filename, bytes) else b""
        yield Problem(show_name(path), f"cannot be read: {exc.strerror}")


def _entry_key(entry: Entry) -> bytes:
    return entry.path + (b"/" if entry.kind is EntryKind.DIR else b"")


def _member_key(member: ManifestMember) -> bytes:
    return member.path + (b"/" if member.kind is MemberKind.DIR else b"")


def _differences(files: DirTree, entry: Entry, member: ManifestMember) -> Iterator[str]:
    if _KINDS.get(entry.kind) is not member.kind:
        yield f"is no {member.kind}"
        return
    if entry.mode & MODE_BITS_KEPT != member.mode:
        yield f"has mode {entry.mode & MODE_BITS_KEPT:o}, not {member.mode:o}"
    if entry.mtime_ns != member.mtime_ns:
        yield "has another modification time"
    if member.kind is MemberKind.SYMLINK and entry.link != member.link_target:
        yield "leads elsewhere"
    if member.kind is not MemberKind.FILE:
        return
    if entry.size != member.size:
        yield f"has {entry.size} bytes, not {member.size}"
    elif (found := _sha256(files, member)) != member.sha256:
        yield found if found.startswith("cannot") else "has other contents"


def _sha256(files: DirTree, member: ManifestMember) -> str:
    digest = hashlib.sha256()
    try:
        for chunk in _chunks(files, member):
            digest.update(chunk)
    except OSError as exc:
        return f"cannot be read: {exc.strerror}"
    return digest.hexdigest()


def _chunks(files: DirTree, member: ManifestMember) -> Generator[bytes, None, None]:
    dir_fd, name = files.parent(member.path)
    fd = os.open(name, READ_FLAGS, dir_fd=dir_fd)
    try:
        while chunk := os.read(fd, _CHUNK_BYTES):
            yield chunk
    finally:
        os.close(fd)


def _fetch_file(files: DirTree, out: DirTree, member: ManifestMember) -> Iterator[int]:
    """Copy one file; the bytes of each piece as it is written."""
    dir_fd, name = out.parent(member.path)
    fd = os.open(
        name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=dir_fd
    )
    digest = hashlib.sha256()
    with open(fd, "wb", buffering=0) as copy:
        with closing(_chunks(files, member)) as chunks:
            for chunk in chunks:
                digest.update(chunk)
                copy.write(chunk)
                yield len(chunk)
        if digest.hexdigest() == member.sha256:
            stamp(fd, member.mode, member.mtime_ns)
            return
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=out.parent(member.path)[0])
    raise ResultDamaged(f"{show_name(member.path)} does not hold the bytes that were committed")
