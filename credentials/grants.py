"""Read tokens: what an attempt reads secrets with, good for exactly its job's paths and only while it is
believed.

One token per path. A token is in the ledger by its accessor before it is handed over, so whoever ends the
attempt, in any process, can have it revoked; a grant that was revoked while it was being made is never
handed over. The token's own short life is the second line: a holder that is not renewed cannot read,
whoever has or has not revoked it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.db.models import Q
from django.db.models.functions import Now

from credentials import store, versions
from credentials.errors import CredentialError, ReadTokenExpired, SecretMissing
from credentials.kv import ReadToken, SecretStore
from credentials.models import CredentialVersion, ReadGrant
from credentials.secret import Secret

log = logging.getLogger(__name__)
REVOKE_ROUNDS_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class ReadTokens:
    """What one holder reads with: its owner's own secrets by name, and pinned connections by name."""

    holder: str
    secrets: Mapping[str, ReadToken]
    connections: Mapping[str, ReadToken]

    def all(self) -> list[ReadToken]:
        return [*self.secrets.values(), *self.connections.values()]

    def to_wire(self) -> dict[str, Any]:
        """For a pipe to a process that may hold them, and nowhere else: this reveals the tokens."""
        return {
            "holder": self.holder,
            "secrets": {name: _to_wire(token) for name, token in self.secrets.items()},
            "connections": {name: _to_wire(token) for name, token in self.connections.items()},
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> ReadTokens:
        return cls(
            wire["holder"],
            {name: _from_wire(token) for name, token in wire["secrets"].items()},
            {name: _from_wire(token) for name, token in wire["connections"].items()},
        )


class Grants:
    """Issues, renews, reads with and revokes read tokens."""

    def __init__(self, secrets: SecretStore) -> None:
        self.secrets = secrets

    def issue_read_token(self, owner: str, holder: str, ttl_s: int) -> ReadTokens:
        """Tokens for all that `owner` may read now: its own secrets and the versions pinned for it."""
        found = store.persistently(lambda: versions.readable(owner))
        grants = [ReadGrant(holder=holder, path=version.path) for version in found]
        store.transact_durably(lambda: ReadGrant.objects.bulk_create(grants))
        own: dict[str, ReadToken] = {}
        pinned: dict[str, ReadToken] = {}
        try:
            for version, grant in zip(found, grants, strict=True):
                names = own if version.owner == owner else pinned
                names[version.name] = self._issue(version, grant, ttl_s)
        except CredentialError:
            self._revoke_quietly(holder)
            raise
        return ReadTokens(holder, own, pinned)

    def _issue(self, version: CredentialVersion, grant: ReadGrant, ttl_s: int) -> ReadToken:
        token = self.secrets.read_token(version.path, ttl_s)
        mine = ReadGrant.objects.filter(pk=grant.pk, accessor__in=("", token.accessor))
        if not store.transact_durably(lambda: mine.update(accessor=token.accessor, checked_at=Now())):
            self.secrets.revoke(token.accessor)
            raise ReadTokenExpired("creation of a read token", detail="revoked before it was handed over")
        return token

    def renew(self, tokens: ReadTokens, ttl_s: int) -> None:
        """Renew all of them, with the lease. ReadTokenExpired says that this holder may read no more."""
        for token in tokens.all():
            self.secrets.renew(token, ttl_s)

    def read_secret(self, tokens: ReadTokens, name: str) -> Secret:
        """A secret that came with the submission."""
        return self._read(tokens.secrets, name)["value"]

    def read_connection(self, tokens: ReadTokens, name: str) -> dict[str, Secret]:
        """All fields of a pinned connection's version, of one version by construction."""
        return self._read(tokens.connections, name)

    def _read(self, tokens: Mapping[str, ReadToken], name: str) -> dict[str, Secret]:
        if name not in tokens:
            raise SecretMissing("read", detail=f"this holder has no {name}")
        return self.secrets.read(tokens[name])

    def revoke(self, holders: Sequence[str]) -> int:
        """Revoke every token of these holders; how many. Safe to repeat, and from any process."""
        count = 0
        for _ in range(REVOKE_ROUNDS_MAX):
            grants = store.persistently(lambda: list(ReadGrant.objects.filter(holder__in=holders)))
            if not grants:
                break
            for grant in grants:
                if grant.accessor:
                    self.secrets.revoke(grant.accessor)
                # Compared with what was revoked: an accessor that came in meanwhile is revoked in the next
                # round.
                gone = ReadGrant.objects.filter(pk=grant.pk, accessor=grant.accessor)
                count += store.transact_durably(gone.delete)[0]
        return count

    def _revoke_quietly(self, holder: str) -> None:
        try:
            self.revoke([holder])
        except CredentialError as error:
            log.warning("ReadTokenNotRevoked", extra={"holder": holder, "error": str(error)})

    def sweep(self, age_s: int, rows_max: int) -> int:
        """Drop grants whose token has lapsed by itself: nobody was left to revoke it. How many."""
        old = Q(checked_at__lt=Now() - timedelta(seconds=age_s))
        count = 0
        for grant in ReadGrant.objects.filter(old).order_by("checked_at")[:rows_max]:
            same = ReadGrant.objects.filter(pk=grant.pk, accessor=grant.accessor)
            if not grant.accessor or self.secrets.is_dead(grant.accessor):
                count += store.transact_durably(same.delete)[0]
            else:
                same.update(checked_at=Now())
        return count


def holders_with_tokens(rows_max: int, after: str = "") -> list[str]:
    """Who holds read tokens, in order: for a sweep of those that should not any more."""
    found = ReadGrant.objects.filter(holder__gt=after).order_by("holder").values_list("holder", flat=True)
    return list(found.distinct()[:rows_max])


def _to_wire(token: ReadToken) -> dict[str, Any]:
    return {
        "token": token.token.reveal(),
        "accessor": token.accessor,
        "path": token.path,
        "ttl_s": token.ttl_s,
    }


def _from_wire(wire: Mapping[str, Any]) -> ReadToken:
    return ReadToken(Secret(wire["token"]), wire["accessor"], wire["path"], float(wire["ttl_s"]))
