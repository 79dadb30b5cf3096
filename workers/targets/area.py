"""Attempt areas on a POSIX target: `<target>/<job id>/<token>/`, one per attempt, named by nobody but this
module.

    files/          the user's tree, as ordinary files
    manifest.json   written last
    partial/        private, numbered names: never derived from the user's, gone when the result is complete

The job id and the token are the fence, spelled as a path: an attempt that never holds another descriptor
than that of its own area cannot write into another attempt's.
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
import uuid
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from workers.files.directories import DIR_FLAGS, open_path, remove_tree

FILES: Final = b"files"
PARTIAL: Final = b"partial"
MANIFEST: Final = b"manifest.json"
_TOKEN: Final = re.compile(r"[1-9][0-9]{0,9}")


class NotAnArea(ValueError):
    """A path that is not `<target>/<job uuid>/<token>`. Nothing is ever removed or opened there."""


@dataclass(frozen=True, slots=True)
class Area:
    """The name of one attempt's area."""

    target: str
    job: str
    token: str

    @classmethod
    def of(cls, target: str, job_id: Hashable, token: int) -> Area:
        return cls.parse(posixpath.join(target, str(job_id), str(token)))

    @classmethod
    def parse(cls, path: str) -> Area:
        parent, token = posixpath.split(path)
        target, job = posixpath.split(parent)
        if not target.startswith("/") or posixpath.normpath(path) != path or not is_job_name(job):
            raise NotAnArea(f"not an attempt area: {path!r}")
        if not _TOKEN.fullmatch(token):
            raise NotAnArea(f"not an attempt area, its last name is no token: {path!r}")
        return cls(target, job, token)

    @property
    def path(self) -> str:
        return posixpath.join(self.target, self.job, self.token)

    def open(self) -> int:
        """The area's descriptor. Links in the target's own path are followed, none below it."""
        target_fd = open_path(self.target)
        try:
            job_fd = os.open(self.job, DIR_FLAGS, dir_fd=target_fd)
        finally:
            os.close(target_fd)
        try:
            return os.open(self.token, DIR_FLAGS, dir_fd=job_fd)
        finally:
            os.close(job_fd)

    def make(self) -> int:
        """Make the area, empty and durable, and open it; leavings of this very attempt are removed first."""
        with suppress(FileExistsError):  # if it is no directory, opening it says so better
            os.makedirs(self.target, exist_ok=True)
        target_fd = open_path(self.target)
        try:
            job_fd = _make_dir(target_fd, self.job)
        finally:
            os.close(target_fd)
        try:
            remove_tree(job_fd, self.token.encode())
            return _make_dir(job_fd, self.token)
        finally:
            os.close(job_fd)

    def remove(self) -> None:
        """Remove exactly this area, then its job's directory if nothing else is in it. Idempotent."""
        try:
            target_fd = open_path(self.target)
        except FileNotFoundError:
            return
        try:
            job_fd = os.open(self.job, DIR_FLAGS, dir_fd=target_fd)
            try:
                remove_tree(job_fd, self.token.encode())
            finally:
                os.close(job_fd)
            os.rmdir(self.job, dir_fd=target_fd)
        except FileNotFoundError:
            return
        except OSError as exc:
            if exc.errno != errno.ENOTEMPTY:
                raise
        finally:
            os.close(target_fd)


def is_job_name(name: str) -> bool:
    """Whether a directory's name is a job id in its one spelling."""
    try:
        return str(uuid.UUID(name)) == name
    except ValueError:
        return False


def _make_dir(parent_fd: int, name: str) -> int:
    try:
        os.mkdir(name, 0o755, dir_fd=parent_fd)
    except FileExistsError:
        pass
    else:
        os.fsync(parent_fd)
    return os.open(name, DIR_FLAGS, dir_fd=parent_fd)
