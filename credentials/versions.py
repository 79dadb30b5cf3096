"""Versions and connections in the ledger: which is current, who relies on it, when its secret may be
destroyed.

Durable functions only; nothing here speaks to Vault. Row locks are taken in one order everywhere: intents,
then connections, then versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from django.db import connection as database
from django.db.models.functions import Now

from credentials import store
from credentials.answer import Misfit, Unfit
from credentials.errors import ConnectionUnknown
from credentials.models import (
    Connection,
    CredentialIntent,
    CredentialVersion,
    SecretPath,
    VersionPin,
    VersionState,
)
from credentials.store import Actor

CONNECTION: Final = "connection:"
PIN_TRIES_MAX: Final = 3


def owner_of(connection_id: UUID) -> str:
    """The owner reference of a connection's versions."""
    return f"{CONNECTION}{connection_id}"


def lock_connections(rows: Iterable[CredentialIntent]) -> dict[str, Connection]:
    """The connections that these intents are for, locked in the order of their ids, by owner reference."""
    ids = {UUID(row.owner.removeprefix(CONNECTION)) for row in rows if row.expected_number is not None}
    locked = Connection.objects.filter(pk__in=ids).order_by("pk").select_for_update() if ids else ()
    return {owner_of(connection.pk): connection for connection in locked}


def adopt(row: CredentialIntent, connections: Mapping[str, Connection]) -> dict[str, Any] | Unfit:
    """CommitCredentialVersion's effect: the version, and for a connection the step from one current to the
    next.
    """
    if row.expected_number is None:
        if CredentialVersion.objects.filter(owner=row.owner, name=row.name).exists():
            return Unfit(Misfit.NAME_TAKEN)
        number = 1
    else:
        connection = connections.get(row.owner)
        if connection is None or connection.retired_at is not None:
            return Unfit(Misfit.RETIRED)
        if connection.current_number != row.expected_number:
            return Unfit(Misfit.NOT_CURRENT)
        number = connection.current_number + 1
        current = CredentialVersion.objects.filter(owner=row.owner, number=connection.current_number)
        current.update(superseded_at=Now())
        Connection.objects.filter(pk=connection.pk).update(current_number=number, rotated_at=Now())
        connection.current_number = number
    CredentialVersion.objects.create(
        intent=row, owner=row.owner, name=row.name, number=number, path=row.path, field_names=row.field_names
    )
    return {}


def ensure_connection(name: str, kind: str, settings: Mapping[str, Any], actor: Actor) -> Connection:
    """The connection's row; one that never got a first version may be given other settings."""

    def work() -> Connection:
        made, created = Connection.objects.get_or_create(
            name=name, defaults={"kind": kind, "settings": dict(settings)}
        )
        found = Connection.objects.select_for_update().get(pk=made.pk)
        if created:
            store.journal(
                [store.event("CreateConnection", owner_of(found.pk), name, actor, params={"kind": kind})]
            )
        elif not found.current_number and found.kind == kind:
            found.settings = dict(settings)
            found.save(update_fields=["settings"])
        return found

    return store.transact_durably(work)


def retire_connection(name: str, actor: Actor) -> Connection:
    """Nothing can pin it any more; its version is destroyed once nobody holds it. For good."""

    def work() -> Connection:
        found = Connection.objects.select_for_update().filter(name=name).first()
        if found is None:
            raise ConnectionUnknown(f"There is no connection {name}.")
        if found.retired_at is None:
            Connection.objects.filter(pk=found.pk).update(retired_at=Now())
            supersede([owner_of(found.pk)])
            store.journal([store.event("RetireConnection", owner_of(found.pk), name, actor)])
        found.refresh_from_db()
        return found

    return store.transact(work)


def release_owner(owners: Sequence[str], actor: Actor) -> int:
    """The owner is gone, so what it owns is to be destroyed; how many versions that are. Also inside a
    transaction.
    """

    def work() -> int:
        count = supersede(owners)
        if count:
            store.journal([store.event("ReleaseOwner", owner, "", actor) for owner in owners])
        return count

    return store.transact(work)


def supersede(owners: Sequence[str]) -> int:
    return CredentialVersion.objects.filter(owner__in=owners, superseded_at=None).update(superseded_at=Now())


# --- who relies on what -----------------------------------------------------------------------------------


def pin_versions(holder: str, names: Sequence[str]) -> dict[str, CredentialVersion]:
    """Pin the current version of each named connection for this holder, instead of what it had pinned of
    them before.

    Meant for the transaction in which the holder is authorised, so that no version is destroyed between the
    two.
    """

    def work() -> dict[str, CredentialVersion]:
        current: dict[str, UUID] = {}
        for _ in range(PIN_TRIES_MAX):  # a version that was being destroyed as we looked has a successor
            current = _lock_current(names)
            if len(current) == len(set(names)):
                break
        else:
            missing = ", ".join(sorted(set(names) - set(current)))
            raise ConnectionUnknown(f"No such connection, or it is retired or has no version yet: {missing}")
        found = {version.pk: version for version in CredentialVersion.objects.filter(pk__in=current.values())}
        owners = [version.owner for version in found.values()]
        stale = VersionPin.objects.filter(holder=holder, version__owner__in=owners)
        stale.exclude(version__in=found).delete()
        VersionPin.objects.bulk_create(
            (VersionPin(holder=holder, version=version) for version in found.values()), ignore_conflicts=True
        )
        return {name: found[pk] for name, pk in current.items()}

    return store.transact(work) if names else {}


def unpin(holders: Sequence[str]) -> int:
    """These holders rely on nothing any more; how many pins that were."""
    return store.transact(lambda: VersionPin.objects.filter(holder__in=holders).delete()[0])


def _lock_current(names: Sequence[str]) -> dict[str, UUID]:
    # The share lock excludes the destroyer's lock and nothing else: authorisations do not wait for each
    # other.
    with database.cursor() as cursor:
        cursor.execute(
            "SELECT c.name, v.id FROM credentials_connection c JOIN credentials_credentialversion v"
            " ON v.owner = %s || c.id AND v.number = c.current_number"
            " WHERE c.name = ANY(%s) AND c.retired_at IS NULL AND v.state = 'Live'"
            " ORDER BY v.id FOR KEY SHARE OF v",
            [CONNECTION, list(names)],
        )
        return dict(cursor.fetchall())


def readable(owner: str) -> list[CredentialVersion]:
    """What this owner may read: its own live secrets, and the versions that it has pinned."""
    live = CredentialVersion.objects.filter(state=VersionState.LIVE)
    return [*live.filter(owner=owner), *live.filter(pins__holder=owner).order_by("pk")]


def owners_with_secrets(owners: Sequence[str]) -> set[str]:
    """Which of these own a live secret or have pinned a version: they need Vault, the others do not."""
    live = CredentialVersion.objects.filter(state=VersionState.LIVE, owner__in=owners)
    pinned = VersionPin.objects.filter(holder__in=owners)
    return {*live.values_list("owner", flat=True), *pinned.values_list("holder", flat=True)}


def holders_with_pins(rows_max: int, after: str = "") -> list[str]:
    """Who has pinned versions, in order: for a sweep of those that are over and were not unpinned."""
    found = VersionPin.objects.filter(holder__gt=after).order_by("holder").values_list("holder", flat=True)
    return list(found.distinct()[:rows_max])


# --- the end of a version ---------------------------------------------------------------------------------


def begin_destruction(rows_max: int, actor: Actor) -> int:
    """Claim versions that are superseded and pinned by nobody: from here on nobody can pin them. How many."""

    def work() -> int:
        superseded = CredentialVersion.objects.filter(
            state=VersionState.LIVE, superseded_at__isnull=False, pins=None
        )
        locked = list(
            superseded.order_by("superseded_at").select_for_update(skip_locked=True, of=("self",))[:rows_max]
        )
        # Looked at again, now that a pin can no longer be added: one may have come before the lock did.
        pinned = set(VersionPin.objects.filter(version__in=locked).values_list("version_id", flat=True))
        free = [version for version in locked if version.pk not in pinned]
        claimed = CredentialVersion.objects.filter(pk__in=[version.pk for version in free])
        store.journal([_version_event("RetireCredentialVersion", version, actor) for version in free])
        return claimed.update(state=VersionState.DESTROYING)

    return store.transact_durably(work)


def finish_destruction(version: CredentialVersion, actor: Actor) -> None:
    """Vault has proved the secret destroyed."""

    def work() -> None:
        claimed = CredentialVersion.objects.filter(pk=version.pk, state=VersionState.DESTROYING)
        if not claimed.select_for_update():
            return
        SecretPath.objects.filter(path=version.path, closed_at=None).update(closed_at=Now())
        claimed.update(state=VersionState.DESTROYED, destroyed_at=Now())
        store.journal([_version_event("DestroyRetiredSecret", version, actor)])

    store.transact_durably(work)


def _version_event(action: str, version: CredentialVersion, actor: Actor) -> Any:
    params = {"number": version.number, "path": version.path}
    return store.event(action, version.owner, version.name, actor, intent_id=version.intent_id, params=params)
