"""Reads JSON that a person or a client wrote: strictly, and saying where it is wrong.

Python's own reader accepts NaN, lets the last of two equal keys win, and overflows on deep nesting. What a
text that is JSON may hold is the submission's to decide; this module only makes sure that nothing is read
as something else than what was written.
"""

from __future__ import annotations

import json
from typing import Any

from jobs.errors import SpecInvalid


def read_object(text: str | bytes, field: str) -> dict[str, Any]:
    """The JSON object that `text` is, or SpecInvalid naming `field` and the place."""
    if isinstance(text, bytes):
        text = _decoded(text, field)
    try:
        value = json.loads(
            text, object_pairs_hook=_once_each, parse_constant=_no_constant, parse_float=_finite
        )
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise SpecInvalid(field, f"not valid JSON at {where}: {error.msg}") from None
    except RecursionError:
        raise SpecInvalid(field, "nested too deeply") from None
    except ValueError as error:
        raise SpecInvalid(field, f"not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise SpecInvalid(field, f"must be a JSON object, such as {{}}; this is {_kind_of(value)}")
    return value


def _decoded(text: bytes, field: str) -> str:
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SpecInvalid(field, f"not UTF-8 at byte {error.start}") from None


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key {name[:80]!a} is there twice")
        found[name] = value
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"the number {text[:40]} is too large")
    return number


def _kind_of(value: Any) -> str:
    if value is None:
        return "null"
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list"}
    return names[type(value)]
