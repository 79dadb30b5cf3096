"""What a spec may hold: JSON that PostgreSQL, Python and any other reader understand alike. Pure.

Every refusal names the field by its path ("spec.files[3].name").
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, Final

from jobs.errors import SpecInvalid

DEPTH_MAX: Final = 64
# Beyond this a reader that keeps numbers as doubles sees another number.
INTEGER_MAX: Final = 2**53 - 1
KEY_CHARS_MAX: Final = 255


def check(value: Any, field: str, bytes_max: int) -> Any:
    """`value` as plain dicts, lists, strings and numbers, or SpecInvalid."""
    plain = _plain(value, field, 1, _Room(field, bytes_max))
    size = len(canonical(plain))
    if size > bytes_max:
        raise SpecInvalid(field, f"is {size} bytes long; at most {bytes_max} are allowed")
    return plain


class _Room:
    """How much of the bound is left while a value is gone through. Each part takes a byte or more, so one
    that spells far more than it holds (a list twice in a list, twice in a list...) ends soon.
    """

    def __init__(self, field: str, bytes_max: int) -> None:
        self._field, self._bytes_max, self._left = field, bytes_max, bytes_max

    def take(self, nbytes: int) -> None:
        self._left -= nbytes
        if self._left < 0:
            raise SpecInvalid(self._field, f"is too long; at most {self._bytes_max} bytes are allowed")


def canonical(value: Any) -> bytes:
    """The one spelling of a JSON value: sorted keys, no spaces, UTF-8."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")


def digest(value: Any) -> str:
    return hashlib.sha256(canonical(value)).hexdigest()


def check_text(value: Any, field: str, *, chars_max: int | None = None, empty: bool = True) -> str:
    """A string that every store can hold."""
    if not isinstance(value, str):
        raise SpecInvalid(field, f"must be a string, not {type(value).__name__}")
    if "\0" in value:
        raise SpecInvalid(field, "holds a NUL character")
    if any("\ud800" <= char <= "\udfff" for char in value):
        raise SpecInvalid(field, "holds half of a surrogate pair, which is no character")
    if not value and not empty:
        raise SpecInvalid(field, "must not be empty")
    if chars_max is not None and len(value) > chars_max:
        raise SpecInvalid(field, f"is {len(value)} characters long; at most {chars_max} are allowed")
    return value


def _plain(value: Any, field: str, depth: int, room: _Room) -> Any:
    # A cyclic value is a bottomless one, so the bound on depth finds it.
    if depth > DEPTH_MAX:
        raise SpecInvalid(field[:200], f"is nested deeper than {DEPTH_MAX} levels")
    room.take(max(len(value), 1) if isinstance(value, str) else 1)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return check_text(value, field)
    if isinstance(value, int):
        return _integer(value, field)
    if isinstance(value, float):
        return _real(value, field)
    if isinstance(value, Mapping):
        return {
            _key(key, field): _plain(item, _path(field, key), depth + 1, room) for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_plain(item, f"{field}[{place}]", depth + 1, room) for place, item in enumerate(value)]
    raise SpecInvalid(field, f"{type(value).__name__} is no JSON value")


def _integer(value: int, field: str) -> int:
    if abs(value) > INTEGER_MAX:
        raise SpecInvalid(field, f"is beyond ±{INTEGER_MAX}; write so large a number as a string")
    return int(value)


def _real(value: float, field: str) -> float:
    if not math.isfinite(value):
        raise SpecInvalid(field, f"{value} is no JSON number")
    return float(value)


def _key(key: Any, field: str) -> str:
    if not isinstance(key, str):
        raise SpecInvalid(field, f"has the key {key!r}; keys must be strings")
    return check_text(key, f"{field}: a key", chars_max=KEY_CHARS_MAX)


def _path(field: str, key: Any) -> str:
    plain = isinstance(key, str) and key.isidentifier() and len(key) <= 60
    return f"{field}.{key}" if plain else f"{field}[{str(key)[:60]!a}]"
