"""Errors of the durable store that its callers are meant to tell apart."""

from __future__ import annotations


class RemoraError(Exception):
    """Base of every error that Remora raises on purpose."""


class SpecInvalid(RemoraError):
    """A job spec that is refused at submission: names the field, and says what is allowed."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message
