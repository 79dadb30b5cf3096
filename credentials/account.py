"""The account of secrets: Vault's own listing against the ledger.

Vault is listed first and the ledger read after it. A path is in the ledger before anything can be written
there, so a listed path that the ledger read later does not know was not written by this deployment, or the
ledger has lost it (restored from a backup, or not the one that belongs to this prefix).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import Count, Min
from django.db.models.functions import Now

from credentials.kv import SecretStore
from credentials.models import CredentialIntent, CredentialVersion, SecretPath, VersionState
from credentials.protocol import OPEN_STATES


@dataclass(frozen=True, slots=True)
class StateAge:
    """How many intents are in a state, and for how long the one that moved longest ago has been."""

    state: str
    count: int
    oldest_s: float


@dataclass(frozen=True, slots=True)
class Account:
    """What is where. Only paths that hold something count as secrets; emptied ones keep their metadata for
    a while.

    unaccounted: hold something, and nobody owns it.   leftover: the ledger has proved them closed, yet they
    do. missing: a live version's secret that Vault does not have.
    """

    owned: int
    emptied: int
    unaccounted: tuple[str, ...]
    leftover: tuple[str, ...]
    missing: tuple[str, ...]

    @property
    def balanced(self) -> bool:
        return not (self.unaccounted or self.leftover or self.missing)

    def as_dict(self) -> dict[str, Any]:
        return {
            "owned": self.owned,
            "emptied": self.emptied,
            "unaccounted": len(self.unaccounted),
            "leftover": len(self.leftover),
            "missing": len(self.missing),
            "paths": {
                "unaccounted": self.unaccounted,
                "leftover": self.leftover,
                "missing": self.missing,
            },
        }


class ForeignLedger(Exception):
    """The ledger has never known any path: it is not the one that belongs to what Vault holds here."""


def intents_by_state() -> list[StateAge]:
    rows = CredentialIntent.objects.values("state").annotate(
        count=Count("pk"), oldest=Min("touched_at"), now=Now()
    )
    return [
        StateAge(row["state"], row["count"], (row["now"] - row["oldest"]).total_seconds())
        for row in rows.order_by("state")
    ]


def open_intents(rows_max: int) -> list[CredentialIntent]:
    found = CredentialIntent.objects.filter(state__in=OPEN_STATES).order_by("touched_at")
    return list(found.annotate(now=Now())[:rows_max])


def is_settled(owner: str) -> bool:
    """Nothing of this owner is in Vault or may come to be: its rows may go with it."""
    intents = CredentialIntent.objects.filter(owner=owner, state__in=OPEN_STATES)
    kept = CredentialVersion.objects.filter(owner=owner).exclude(state=VersionState.DESTROYED)
    return not intents.exists() and not kept.exists()


def take_account(secrets: SecretStore) -> Account:
    listed = secrets.paths()
    ledger = {row.path: row for row in SecretPath.objects.filter(path__in=listed)}
    holds = {path: bool(secrets.live_versions(path)) for path in listed if not _is_open(ledger.get(path))}
    live = set(CredentialVersion.objects.filter(state=VersionState.LIVE).values_list("path", flat=True))
    return Account(
        owned=len(listed) - len(holds),
        emptied=sum(not something for something in holds.values()),
        unaccounted=tuple(path for path, something in holds.items() if something and path not in ledger),
        leftover=tuple(path for path, something in holds.items() if something and path in ledger),
        missing=tuple(sorted(live - set(secrets.paths()))),
    )


def destroy_orphans(secrets: SecretStore, account: Account) -> int:
    """Destroy what the account has found that nobody owns. Metadata stays, so that nothing can be written
    there.
    """
    if account.unaccounted and not SecretPath.objects.exists():
        raise ForeignLedger
    orphans = [*account.unaccounted, *account.leftover]
    still_closed = {path: row for path, row in SecretPath.objects.in_bulk(orphans).items() if _is_open(row)}
    destroyed = [path for path in orphans if path not in still_closed]
    for path in destroyed:
        secrets.destroy(path)
    return len(destroyed)


def _is_open(row: SecretPath | None) -> bool:
    """Does the ledger answer for whatever is at this path?"""
    return row is not None and row.closed_at is None
