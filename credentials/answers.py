"""What Vault answers, and which error an answer stands for. Vault's own words are judged here and go no
further.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from credentials.errors import (
    AccessorUnknown,
    CasConflict,
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
    body: Mapping[str, Any]
    retry_after_s: float | None = None

    @property
    def data(self) -> Mapping[str, Any]:
        return self.body.get("data") or {}


def checked(answer: Answer, operation: str, path: str, missing_ok: bool = False) -> Answer:
    """The answer, if it is one; else the error it stands for."""
    status = answer.status
    if status in (200, 204) or (status == 404 and missing_ok):
        return answer
    words = " ".join(str(word) for word in answer.body.get("errors") or ()).lower()
    detail = f"HTTP {status}"
    if status == 400 and "check-and-set" in words:
        raise CasConflict(operation, path)
    if "invalid accessor" in words:  # 400 or 403, by version
        raise AccessorUnknown(operation, path)
    if status in (401, 403):
        raise VaultForbidden(operation, path)
    if status == 501 or (status in (500, 503) and "sealed" in words):
        raise VaultSealed(operation, path)
    if status in (301, 302, 307, 308, 472, 473) or "node not active" in words or "standby" in words:
        raise VaultStandby(operation, path, detail)
    if status == 429:
        raise VaultRateLimited(operation, path, retry_after_s=answer.retry_after_s)
    if status < 500 and status not in (408, 412, 425):
        raise VaultRefused(operation, path, detail)
    raise VaultUnavailable(operation, path, detail, answer.retry_after_s)


def retry_after_s(given: str) -> float | None:
    """A Retry-After header's seconds, bounded; dates are not used by Vault."""
    return min(float(given), RETRY_AFTER_S_MAX) if given.isdigit() else None
