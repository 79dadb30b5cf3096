"""Reads settings from the environment: typed, bounded, and naming the variable when a value is wrong."""

import json
from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ImproperlyConfigured

YES = {"1", "true", "yes", "on"}
NO = {"", "0", "false", "no", "off"}


class Env:
    """A view of the environment that remembers which names are settings."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self.names: set[str] = set()

    def text(self, name: str, default: str = "") -> str:
        self.names.add(name)
        return self._variables.get(name) or default

    def whole(self, name: str, default: int, least: int = 1) -> int:
        given = self.text(name, str(default))
        try:
            value = int(given)
        except ValueError:
            raise ImproperlyConfigured(f"{name}={given!r} is not a whole number.") from None
        if value < least:
            raise ImproperlyConfigured(f"{name}={value} is too small: at least {least}.")
        return value

    def flag(self, name: str, default: bool) -> bool:
        given = self.text(name, "yes" if default else "no").strip().lower()
        if given not in YES | NO:
            raise ImproperlyConfigured(f"{name}={given!r} is neither yes nor no.")
        return given in YES

    def words(self, name: str, default: str) -> list[str]:
        return [word.strip() for word in self.text(name, default).split(",") if word.strip()]

    def limits(self, name: str) -> dict[str, int]:
        """A JSON object of names and whole numbers, such as {"default": 8}."""
        given = self.text(name, "{}")
        wrong = ImproperlyConfigured(
            f'{name} must be a JSON object of whole numbers, such as {{"default": 8}}.'
        )
        try:
            value: Any = json.loads(given)
        except ValueError:
            raise wrong from None
        if not isinstance(value, dict) or not all(
            type(limit) is int and limit >= 0 for limit in value.values()
        ):
            raise wrong
        return value
