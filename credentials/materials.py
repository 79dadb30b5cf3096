"""What is accepted as material, as a name for it, and as settings beside it: checked before anything is
written.

Errors name the field and never quote the value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from credentials.errors import MaterialInvalid
from credentials.models import ConnectionKind
from credentials.scrub import scrub
from credentials.secret import Material

NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")
SETTINGS_BYTES_MAX: Final = 16_384
# For each kind, the sets of fields of which one must be given whole; further fields that may join them.
FIELDS: Final[Mapping[str, tuple[tuple[frozenset[str], ...], frozenset[str]]]] = {
    ConnectionKind.S3: (
        (frozenset({"access_key_id", "secret_access_key"}),),
        frozenset({"session_token"}),
    ),
    ConnectionKind.HTTP: (
        (frozenset({"token"}), frozenset({"username", "password"})),
        frozenset(),
    ),
    ConnectionKind.SFTP: (
        (frozenset({"username", "password"}), frozenset({"username", "private_key"})),
        frozenset({"passphrase"}),
    ),
}


def check_names(field: str, given: Mapping[str, object], names_max: int) -> None:
    if len(given) > names_max:
        raise MaterialInvalid(field, f"at most {names_max} are taken")
    for name in given:
        if not NAME.fullmatch(name):
            raise MaterialInvalid(
                field,
                "a name is a letter, then up to 99 letters, digits, dots, hyphens or underscores",
            )


def check_material(field: str, material: Material, bytes_max: int) -> None:
    check_names(field, material, 20)
    if not material:
        raise MaterialInvalid(field, "it is empty")
    size = 0
    for name, secret in material.items():
        try:
            size += len(secret.reveal().encode())
        except UnicodeEncodeError:
            size = -1
        if size < 0:  # raised here, since the error above quotes the value
            raise MaterialInvalid(f"{field}.{name}", "it is not text; encode bytes, for example as base64")
        if not secret.reveal():
            raise MaterialInvalid(f"{field}.{name}", "it is empty")
    if size > bytes_max:
        raise MaterialInvalid(field, f"more than {bytes_max} bytes")


def check_fields(kind: str, material: Material) -> None:
    """The fields of a connection fit its kind; a generic one has what it likes."""
    if kind not in ConnectionKind.values:
        raise MaterialInvalid("kind", f"one of {', '.join(ConnectionKind.values)}")
    if kind not in FIELDS:
        return
    alternatives, further = FIELDS[kind]
    given = set(material)
    if not any(wanted <= given <= wanted | further for wanted in alternatives):
        known = " or ".join(" and ".join(sorted(wanted)) for wanted in alternatives)
        raise MaterialInvalid("material", f"for {kind} it has {known}")


def check_settings(settings: Mapping[str, Any]) -> None:
    """Settings are shown to everybody who may see connections, so nothing in them may look like a secret."""
    text = json.dumps(settings, default=repr, ensure_ascii=False)
    if len(text.encode("utf-8", "replace")) > SETTINGS_BYTES_MAX:
        raise MaterialInvalid("settings", f"more than {SETTINGS_BYTES_MAX} bytes")
    if "\\u0000" in text or scrub(text) != text:
        raise MaterialInvalid("settings", "something in them looks like a credential; give it as material")
