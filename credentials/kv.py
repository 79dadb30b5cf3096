"""What Remora keeps in Vault, and how: one path per try in a KV v2 store, written once, read with a token
of its own.

Every method is one operation on one path, safe to repeat, and answers with what is then a fact. The writes
are check-and-set against absence (`cas: 0`) and nothing else; docs/credentials.md says why the fence holds.

* A path's name is random and used for one try. It never has more than one version.
* A write token may be used once. So at most one request for a path is ever carried out, also where
  something on the way sends it twice, and Vault can say whether another may still come: is the token's
  accessor known?
* A tombstone is a version without material, written with the same check-and-set. It and a write exclude
  each other.
* Whether a path holds material is asked of `subkeys`, which names fields and no values: nobody but the
  holder of a read token is ever answered with material.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from credentials.answers import Answer
from credentials.errors import (
    AccessorUnknown,
    CasConflict,
    ReadTokenExpired,
    SecretMissing,
    VaultForbidden,
    VaultRefused,
    VaultUnavailable,
)
from credentials.secret import Material, Secret
from credentials.vault import VaultSession

TOMBSTONE: Final = "tombstone"
FIELDS: Final = "fields"


class PathState(StrEnum):
    """What is at a path. ABSENT is no fact that lasts until the path is fenced; the others are."""

    ABSENT = "absent"
    LIVE = "live"  # also when deleted but not destroyed: the material can be brought back
    TOMBSTONE = "tombstone"
    DESTROYED = "destroyed"


class FenceOutcome(StrEnum):
    """Which of the two came first."""

    FENCED = "fenced"
    LANDED = "landed"


@dataclass(frozen=True, slots=True)
class WriteToken:
    """Good for one request. The accessor tells nothing and opens nothing; it may be stored."""

    token: Secret
    accessor: str


@dataclass(frozen=True, slots=True)
class ReadToken:
    """Good for reading one path. Vault knows the path as the alias of an entity, which the policy names."""

    token: Secret
    accessor: str
    path: str
    ttl_s: float


@dataclass(frozen=True, slots=True)
class SecretStore:
    """The paths under one prefix of one mount. One prefix and one name of roles belong to one deployment."""

    session: VaultSession
    mount: str
    prefix: str
    roles: str = "remora"

    @property
    def write_role(self) -> str:
        return f"{self.roles}-write"

    @property
    def read_role(self) -> str:
        return f"{self.roles}-read"

    def at(self, path: str) -> str:
        """How a path is named in messages."""
        return f"{self.mount}/{self.prefix}/{path}"

    def _url(self, kind: str, path: str) -> str:
        return f"{self.mount}/{kind}/{self.prefix}/{path}"

    # --- writing ------------------------------------------------------------------------------------------

    def write_token(self, ttl_s: int) -> WriteToken:
        body = {"ttl": f"{ttl_s}s"}
        answer = self.session.call(
            "post", f"auth/token/create/{self.write_role}", "creation of a write token", body
        )
        auth = _auth(answer)
        if auth.get("num_uses") != 1:
            raise VaultRefused(
                "creation of a write token", detail="the role does not limit its tokens to one use"
            )
        return WriteToken(Secret(auth["client_token"]), auth["accessor"])

    def write(self, path: str, material: Material, token: WriteToken) -> None:
        """CompleteCredentialWrite. Returns only if it landed; an error leaves open whether it did or will."""
        self._write_once(path, "write", {FIELDS: material}, token)

    def _write_once(self, path: str, operation: str, data: dict[str, Any], token: WriteToken) -> None:
        body = {"options": {"cas": 0}, "data": data}
        answer = self.session.call_as(token.token, "post", self._url("data", path), operation, body)
        if answer.data.get("version") != 1:
            raise VaultUnavailable(operation, self.at(path), "not the answer of a KV v2 store")

    def read_back(self, path: str) -> PathState:
        """What is at the path, without the material."""
        answer = self.session.call(
            "get", f"{self._url('subkeys', path)}?version=1", "read-back", missing_ok=True
        )
        data = answer.data
        if answer.status == 404 and not data:
            return PathState.ABSENT
        if (data.get("metadata") or {}).get("destroyed"):
            return PathState.DESTROYED
        if TOMBSTONE in (data.get("subkeys") or {}):
            return PathState.TOMBSTONE
        return PathState.LIVE

    def fence(self, path: str, token_ttl_s: int) -> FenceOutcome:
        """FenceFailedCredentialWrite's half in Vault: after FENCED no write to this path can land."""
        try:
            self._write_once(path, "fence", {TOMBSTONE: ""}, self.write_token(token_ttl_s))
            found = PathState.TOMBSTONE
        except CasConflict:
            found = self.read_back(path)
        if found is PathState.LIVE:
            return FenceOutcome.LANDED
        if found is PathState.TOMBSTONE:
            self.destroy(path)
        elif found is PathState.ABSENT:
            # Refused because something was there, and now nothing is: somebody else removed the metadata.
            raise VaultUnavailable("fence", self.at(path), "the path was changed by somebody else")
        return FenceOutcome.FENCED

    # --- ending -------------------------------------------------------------------------------------------

    def destroy(self, path: str) -> None:
        """Every version is gone for good. The metadata stays: it is what refuses a late write."""
        if live := self.live_versions(path):
            self._call("post", "destroy", path, "destruction", {"versions": live})
        if live and self.live_versions(path):
            raise VaultUnavailable("destruction", self.at(path), "a version is still there")

    def live_versions(self, path: str) -> list[int]:
        """Versions that hold something, material or tombstone, also those that are deleted but not
        destroyed.
        """
        versions = self._call("get", "metadata", path, "listing of versions").data.get("versions") or {}
        return sorted(int(number) for number, version in versions.items() if not version.get("destroyed"))

    def forget(self, path: str) -> None:
        """Remove the metadata. This opens the path to check-and-set again: only when nobody can write to
        it.
        """
        self._call("delete", "metadata", path, "removal of metadata")

    def paths(self) -> list[str]:
        """Vault's own listing of everything under the prefix."""
        url = f"{self.mount}/metadata/{self.prefix}"
        return sorted(
            str(key)
            for key in self.session.call("list", url, "listing", missing_ok=True).data.get("keys") or ()
        )

    def _call(self, method: str, kind: str, path: str, operation: str, body: Any = None) -> Answer:
        return self.session.call(method, self._url(kind, path), operation, body, missing_ok=True)

    # --- tokens -------------------------------------------------------------------------------------------

    def is_dead(self, accessor: str) -> bool:
        """Vault knows no such token any more: no request that carries it will ever be carried out."""
        try:
            body = {"accessor": accessor}
            self.session.call("post", "auth/token/lookup-accessor", "look-up of an accessor", body)
        except AccessorUnknown:
            return True
        return False

    def revoke(self, accessor: str) -> None:
        """The token and what it could do are gone; also right when they already were."""
        body = {"accessor": accessor}
        self.session.call(
            "post", "auth/token/revoke-accessor", "revocation of a token", body, missing_ok=True
        )

    def read_token(self, path: str, ttl_s: int) -> ReadToken:
        body = {"ttl": f"{ttl_s}s", "entity_alias": path}
        answer = self.session.call(
            "post", f"auth/token/create/{self.read_role}", "creation of a read token", body
        )
        auth = _auth(answer)
        return ReadToken(Secret(auth["client_token"]), auth["accessor"], path, float(auth["lease_duration"]))

    def renew(self, token: ReadToken, ttl_s: int) -> float:
        """How long it lives now. The token renews itself: it needs no rights of ours."""
        body = {"increment": f"{ttl_s}s"}
        try:
            answer = self.session.call_as(
                token.token, "post", "auth/token/renew-self", "renewal of a read token", body
            )
        except VaultForbidden:
            answer = None
        if answer is None:
            raise ReadTokenExpired("renewal of a read token", self.at(token.path))
        return float(_auth(answer)["lease_duration"])

    def read(self, token: ReadToken) -> dict[str, Secret]:
        """The material, for the holder of the token."""
        answer, where = None, self.at(token.path)
        try:
            answer = self.session.call_as(token.token, "get", self._url("data", token.path), "read")
        except VaultForbidden:
            alive = self.session.is_alive(token.token)
        if answer is None:
            raise VaultForbidden("read", where) if alive else ReadTokenExpired("read", where)
        fields = (answer.data.get("data") or {}).get(FIELDS)
        if answer.status == 404 or not isinstance(fields, dict):
            raise SecretMissing("read", where)
        return {name: Secret(value) for name, value in fields.items()}

    def forget_reader(self, path: str) -> bool:
        """Remove the entity that read tokens of this path were made for. False where policy keeps that
        right from us.
        """
        accessor = self._token_mount()
        body = {"alias_name": path, "alias_mount_accessor": accessor}
        try:
            found = self.session.call(
                "post", "identity/lookup/entity", "look-up of a reader", body, missing_ok=True
            )
            if entity := found.data.get("id"):
                self.session.call(
                    "delete", f"identity/entity/id/{entity}", "removal of a reader", missing_ok=True
                )
        except VaultForbidden:
            return False
        return True

    def _token_mount(self) -> str:
        mounts = self.session.call("get", "sys/internal/ui/mounts/auth/token", "look-up of the token store")
        return str(mounts.data.get("accessor", ""))


def _auth(answer: Answer) -> dict[str, Any]:
    auth = answer.body.get("auth")
    if not isinstance(auth, dict):
        raise VaultUnavailable("login", detail="not the answer of Vault")
    return auth
