"""Names and paths outside the file system. As JSON values: text where they are UTF-8, else base64 with a
flag, always reversible (manifests and checkpoint proofs live in stores that hold text only). In messages:
one printable line with visible escapes, for reading only.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Final

SHOWN_CHARS_MAX: Final = 200


def encode_name(key: str, name: bytes) -> dict[str, str]:
    """`{key: text}`, or `{key: base64, key_encoding: "base64"}` for bytes that are not UTF-8."""
    try:
        return {key: name.decode("utf-8", "strict")}
    except UnicodeDecodeError:
        return {key: base64.b64encode(name).decode("ascii"), f"{key}_encoding": "base64"}


def decode_name(key: str, fields: Mapping[str, object]) -> bytes:
    """The bytes that `encode_name` was given, or ValueError."""
    text, encoding = fields.get(key), fields.get(f"{key}_encoding")
    if not isinstance(text, str):
        raise ValueError(f"{key} is not text")
    if encoding is None:
        return text.encode("utf-8")
    if encoding != "base64":
        raise ValueError(f"{key}_encoding is not base64")
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as exc:
        raise ValueError(f"{key} is not base64") from exc


def show_name(name: bytes | str) -> str:
    """A name as messages may hold it: one printable line, bounded, every odd character a visible escape."""
    text = name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name
    shown = "".join(show_char(char) for char in text)
    return shown if len(shown) <= SHOWN_CHARS_MAX else shown[:120] + "..." + shown[-70:]


def show_char(char: str) -> str:
    """One character, visible: as it is if printable, else an escape."""
    if char == "\\":
        return "\\\\"
    return char if char.isprintable() else char.encode("unicode_escape").decode("ascii")
