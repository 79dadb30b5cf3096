"""What a target can and cannot do, stated once, so that a handler asks instead of assuming.

A handler that needs something a target does not do refuses the job before anything is staged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetCapabilities:
    """The capability sheet of one kind of target."""

    any_byte_names: bool
    """Member names are arbitrary bytes (but NUL and "/"); otherwise they must be valid UTF-8."""
    empty_directories: bool
    """A directory without members can be held."""
    symlinks: bool
    """A symbolic link can be held as a link."""
    modes_and_mtimes: bool
    """Permission bits and modification times (ns) are kept on the members themselves."""
    resume_inside_member: bool
    """A half-written member can be continued by a later attempt."""
    adopt_without_copy: bool
    """A sealed member of an earlier attempt can become this attempt's own without its bytes being moved."""
    name_bytes_max: int
    """Longest single name, in bytes."""


POSIX: Final = TargetCapabilities(
    any_byte_names=True,
    empty_directories=True,
    symlinks=True,
    modes_and_mtimes=True,
    resume_inside_member=True,
    adopt_without_copy=True,
    name_bytes_max=255,
)
