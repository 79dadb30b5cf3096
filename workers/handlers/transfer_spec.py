"""The spec of a transfer, and all that is refused before a job exists.

`{"source": "/abs/dir", "target": "/abs/dir", "parallelism": 1..16}`. Paths are text; a tree whose *root* has
a name that is not UTF-8 cannot be named (what lies below the root may be named in any bytes). Links in the
two paths themselves are the user's own and are followed; so "inside" is judged by real paths, and judged
again when the attempt starts, because links can change.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from jobs.errors import SpecInvalid
from workers.targets.area import is_job_name

PARALLELISM_DEFAULT: Final = 4
PARALLELISM_MAX: Final = 16
PATH_BYTES_MAX: Final = 4000  # an area's own names come on top of it, within PATH_MAX
KEYS: Final = ("source", "target", "parallelism")


@dataclass(frozen=True, slots=True)
class TransferSpec:
    """A valid spec, in its normal form."""

    source: str
    target: str
    parallelism: int

    @classmethod
    def parse(cls, spec: Mapping[str, Any]) -> TransferSpec:
        """The shape only: keys, types, spelling. What exists where is asked by `validate`."""
        if not isinstance(spec, Mapping):
            raise SpecInvalid(
                "spec", 'must be an object such as {"source": "/abs/dir", "target": "/abs/dir"}'
            )
        for key in spec:
            if key not in KEYS:
                raise SpecInvalid(str(key)[:80], _unknown_key(str(key)))
        for key in ("source", "target"):
            if key not in spec:
                raise SpecInvalid(key, "is required: the absolute path of a directory")
        source, target = (_path(key, spec[key]) for key in ("source", "target"))
        return cls(source, target, _parallelism(spec.get("parallelism", PARALLELISM_DEFAULT)))

    def as_json(self) -> dict[str, Any]:
        return {"source": self.source, "target": self.target, "parallelism": self.parallelism}


def validate(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec in its normal form, or SpecInvalid."""
    parsed = TransferSpec.parse(spec)
    if not os.path.lexists(parsed.source):
        raise SpecInvalid("source", f"does not exist: {parsed.source}")
    if not os.path.isdir(parsed.source):
        raise SpecInvalid("source", f"must be a directory: {parsed.source}")
    if not os.access(parsed.source, os.R_OK | os.X_OK):
        raise SpecInvalid("source", f"cannot be read by this process: {parsed.source}")
    _check_target(parsed.target)
    check_apart(parsed)
    return parsed.as_json()


def check_apart(spec: TransferSpec) -> None:
    """Neither tree may grow while it is read: SpecInvalid if the target is (in) the source, or the other
    way.
    """
    source, target = os.path.realpath(spec.source), os.path.realpath(spec.target)
    if source == target:
        raise SpecInvalid("target", "must be another directory than the source")
    if _is_below(target, source):
        raise SpecInvalid("target", f"must not lie inside the source: {target} lies in {source}")
    if _is_below(source, target) and is_job_name(posixpath.relpath(source, target).split("/")[0]):
        raise SpecInvalid(
            "source", "must not lie in the staging area of a job: use another target, or fetch it"
        )


def _unknown_key(key: str) -> str:
    near = get_close_matches(key, KEYS, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"is no key of a transfer; known: {', '.join(KEYS)}.{hint}"


def _path(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise SpecInvalid(field, "must be text: the absolute path of a directory")
    if "\0" in value:
        raise SpecInvalid(field, "must not hold a NUL character")
    try:
        size = len(value.encode("utf-8"))
    except UnicodeEncodeError:
        raise SpecInvalid(field, "must be valid Unicode; it holds a lone surrogate") from None
    if not value.startswith("/"):
        raise SpecInvalid(field, "must be an absolute path, beginning with /")
    if size > PATH_BYTES_MAX:
        raise SpecInvalid(field, f"must have at most {PATH_BYTES_MAX} bytes; it has {size}")
    if ".." in value.split("/"):
        raise SpecInvalid(field, "must not hold '..'")
    return "/" + posixpath.normpath(value).lstrip("/")


def _parallelism(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= PARALLELISM_MAX:
        raise SpecInvalid("parallelism", f"must be a whole number from 1 to {PARALLELISM_MAX}")
    return value


def _check_target(target: str) -> None:
    """The target may be missing (it is made then), but what is there must be a directory."""
    existing = target
    while not os.path.lexists(existing):
        existing = posixpath.dirname(existing)
    if not os.path.isdir(existing):
        raise SpecInvalid("target", f"must be a directory: {existing} is none")


def _is_below(path: str, root: str) -> bool:
    return path.startswith(root.rstrip("/") + "/")
