"""What Vault answers, and which error an answer stands for. Vault's own words are judged here and go no
further.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from credentials.errors import (
    AccessorUnknown,
    CasConflict,
    VaultError,
    VaultForbidden,
    VaultRateLimited,
    VaultRefused,
    VaultSealed,
    VaultStandby,
    VaultUnavailable,
)

RETRY_AFTER_S_MAX: Final = 300.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back: a status, and the JSON body or nothing."""

    status: int
    body: Mapping[str, Any] = field(repr=False)  # tokens and material, or an echo of what was sent
    retry_after_s: float | None = None

    @property
    def data(self) -> Mapping[str, Any]:
        return self.body.get("data") or {}


def checked(answer: Answer, operation: str, path: str, missing_ok: bool = False) -> Answer:
    """The answer, if it is one; else the error it stands for."""
    if answer.status in (200, 204) or (answer.status == 404 and missing_ok):
        return answer
    raise _error_of(answer)(operation, path, f"HTTP {answer.status}", answer.retry_after_s)


def _error_of(answer: Answer) -> type[VaultError]:
    """Vault's words decide here, in a frame that no traceback keeps."""
    status = answer.status
    words = " ".join(str(word) for word in answer.body.get("errors") or ()).lower()
    if status == 400 and "check-and-set" in words:
        return CasConflict
    if "invalid accessor" in words:  # 400 or 403, by version
        return AccessorUnknown
    if status in (401, 403):
        return VaultForbidden
    if status == 501 or (status in (500, 503) and "sealed" in words):
        return VaultSealed
    if status in (301, 302, 307, 308, 472, 473) or "node not active" in words or "standby" in words:
        return VaultStandby
    if status == 429:
        return VaultRateLimited
    if status < 500 and status not in (408, 412, 425):
        return VaultRefused
    return VaultUnavailable


def retry_after_s(given: str) -> float | None:
    """A Retry-After header's seconds, bounded; dates are not used by Vault."""
    return min(float(given), RETRY_AFTER_S_MAX) if given.isdigit() else None
