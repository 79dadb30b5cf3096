"""`Secret`: material in memory that does not show itself.

It does not print, format, log, pickle, serialise or hash; it compares in constant time; only `reveal` gives
the material, and that word is what a reviewer looks for. Standard library only.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any, Final, NoReturn, TypeAlias

HIDDEN: Final = "Secret(hidden)"


class Secret:
    """Text that must not leave this process but through `reveal`. Immutable, so a copy is the same object."""

    __slots__ = ("_material",)
    _material: str
    __hash__ = None  # type: ignore[assignment]  # a hash of a guessable value is a way to guess it

    def __init__(self, material: str) -> None:
        if not isinstance(material, str):
            raise TypeError("A secret's material is text.")
        object.__setattr__(self, "_material", material)

    def reveal(self) -> str:
        """The material itself. Never bind it to a name that outlives the call it is for."""
        return self._material

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        mine, theirs = self._material, other._material
        return hmac.compare_digest(
            mine.encode("utf-8", "surrogatepass"), theirs.encode("utf-8", "surrogatepass")
        )

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("A secret does not change.")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("A secret does not change.")

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("A secret is not pickled.")

    def __getstate__(self) -> NoReturn:
        raise TypeError("A secret is not serialised.")


# What one path in Vault holds: named fields that are written and read together, so that a user name is
# never read with another version's password.
Material: TypeAlias = Mapping[str, Secret]


def material_of(fields: Mapping[str, Any]) -> dict[str, Secret]:
    """Wrap what came from a prompt, a form or Vault."""
    return {name: value if isinstance(value, Secret) else Secret(value) for name, value in fields.items()}
