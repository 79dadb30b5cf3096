"""Every error that credentials raise on purpose. None of them ever carries material, a token, a header or a
body.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar


class FailureClass(StrEnum):
    """Whose turn it is after a failure."""

    RETRYABLE = "retryable"  # the same call may succeed later, by itself
    PERMANENT = "permanent"  # it will be refused again: the caller must change
    OPERATOR = (
        "operator"  # it will succeed after a person has done something; waiting is right, trying is not
    )


class CredentialError(Exception):
    """Base of all of them."""

    failure_class: FailureClass = FailureClass.PERMANENT


class MaterialInvalid(CredentialError):
    """Material, or a name for it, that cannot be kept: names the field, never the value."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class CredentialConflict(CredentialError):
    """Somebody else was first; what this caller wrote is destroyed."""


class ConnectionUnknown(CredentialError):
    """No connection of that name can be used."""


class VersionInUse(CredentialError):
    """A version that a holder has pinned is not taken away."""


class IntentGone(CredentialError):
    """The intent was taken over or abandoned before its version was committed: nothing of it is left."""


class VaultError(CredentialError):
    """Base of what can go wrong with Vault: says what was tried, at which path, and whose turn it is."""

    failure_class = FailureClass.RETRYABLE
    meaning: ClassVar[str] = "the call failed"

    def __init__(
        self, operation: str, path: str = "", detail: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(operation, path, detail, retry_after_s)
        self.operation = operation
        self.path = path
        self.detail = detail
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        where = f" {self.path}" if self.path else ""
        detail = f" ({self.detail})" if self.detail else ""
        return f"Vault, {self.operation}{where}: {self.meaning}{detail}"


class VaultSealed(VaultError):
    failure_class = FailureClass.OPERATOR
    meaning = "it is sealed or not initialised; somebody must unseal it"


class VaultStandby(VaultError):
    meaning = "a standby node answered that does not forward; VAULT_ADDR should lead to the active one"


class VaultRateLimited(VaultError):
    meaning = "it asks for fewer requests"


class VaultForbidden(VaultError):
    failure_class = FailureClass.PERMANENT
    meaning = "permission denied to a token that is valid"


class VaultExpiredToken(VaultError):
    failure_class = FailureClass.OPERATOR
    meaning = "the token is expired or revoked"


class ReadTokenExpired(VaultExpiredToken):
    """A read token outlived its attempt, or was not renewed: the next attempt is given its own."""

    failure_class = FailureClass.RETRYABLE


class VaultUnavailable(VaultError):
    meaning = "it cannot be reached, or cannot answer now"


class VaultTimeout(VaultUnavailable):
    meaning = "no answer in time; the request may still be carried out"


class VaultMisconfigured(VaultError):
    failure_class = FailureClass.OPERATOR
    meaning = "the connection settings do not fit the server"


class VaultRefused(VaultError):
    failure_class = FailureClass.PERMANENT
    meaning = "the request itself was refused"


class AccessorUnknown(VaultRefused):
    meaning = "no token has this accessor (any more)"


class CasConflict(VaultError):
    failure_class = FailureClass.PERMANENT
    meaning = "something was written there before"


class SecretMissing(VaultError):
    failure_class = FailureClass.PERMANENT
    meaning = "nothing is there, or it was deleted"


class ProtocolViolation(CredentialError):
    """A row is not as it was locked, or a write did not find it: a bug, never caught."""


class LedgerUnavailable(CredentialError):
    """PostgreSQL did not answer, or kept refusing, for as long as it was tried. Calling again is safe."""

    failure_class = FailureClass.RETRYABLE
