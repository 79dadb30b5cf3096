"""Where identity and chance enter."""

from __future__ import annotations

import secrets
from uuid import UUID

from uuid_utils.compat import uuid7


def new_id() -> UUID:
    """An id never used before; ids made one after another are neighbours in every index."""
    return UUID(int=uuid7().int)


def new_path() -> str:
    """A path in Vault that nobody has used, or can guess: 128 bits of chance, no name of anything."""
    return secrets.token_hex(16)
