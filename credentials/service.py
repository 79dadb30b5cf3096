"""What the rest of Remora asks of credentials: keep material, name it, rotate it, let an attempt read it.

Material comes in as `Secret` and goes to Vault; what comes back names versions and paths. The durable half
of each answer is in the ledger before Vault is told (`intents.py`), so the calls that write to Vault refuse
to run inside a transaction; `commit` may run inside the caller's, and should: a job and its secrets are
then accepted together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

from credentials import materials, store, transitions, versions
from credentials.answer import Answer
from credentials.errors import ConnectionUnknown, CredentialConflict, CredentialError, IntentGone, VaultError
from credentials.ids import new_id
from credentials.intents import IntentDriver, Witness, no_witness
from credentials.kv import SecretStore
from credentials.models import Connection, CredentialVersion
from credentials.protocol import Accepted, VaultState
from credentials.secret import Material, Secret
from credentials.store import Actor
from credentials.transitions import Prepare, Step

VALUE: Final = "value"


@dataclass(frozen=True, slots=True)
class Kept:
    """Material that is in Vault and waits for its version: an intent that is Written."""

    intent_id: UUID
    owner: str
    name: str
    path: str


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is taken, and how often a write is tried."""

    bytes_max: int = 65_536
    secrets_max: int = 20
    tries_max: int = 3
    write_token_s: int = 60


class CredentialService:
    """One actor's access to credentials. Cheap to make; holds no connection of its own."""

    def __init__(
        self, secrets: SecretStore, actor: Actor, bounds: Bounds = Bounds(), witness: Witness = no_witness
    ) -> None:
        self.secrets, self.actor, self.bounds = secrets, actor, bounds
        self.driver = IntentDriver(secrets, actor, bounds.tries_max, bounds.write_token_s, witness)

    def trouble(self) -> VaultError | None:
        """Why Vault cannot be used now, or None. While it is sealed, what needs secrets waits."""
        return self.secrets.session.condition() or self.secrets.session.login_trouble()

    # --- secrets that come with a submission --------------------------------------------------------------

    def keep_secrets(self, owner: str, given: Mapping[str, Secret]) -> list[Kept]:
        """Put a submission's secrets into Vault. `commit` what this returns, or `discard` it; or the
        reconciler will.
        """
        materials.check_names("secrets", given, self.bounds.secrets_max)
        return self._keep(owner, {name: {VALUE: secret} for name, secret in given.items()})

    def _keep(
        self, owner: str, given: Mapping[str, Material], expected_number: int | None = None
    ) -> list[Kept]:
        for name, material in given.items():
            materials.check_material(name, material, self.bounds.bytes_max)
        requests = [
            Prepare(new_id(), owner, name, tuple(sorted(material)), expected_number)
            for name, material in given.items()
        ]
        self.driver.step(
            "PrepareCredentialIntent",
            lambda: transitions.prepare_credential_intent(requests, self.actor),
        )
        kept: list[Kept] = []
        try:
            for request in requests:
                path = self.driver.write(request.intent_id, given[request.name])
                kept.append(Kept(request.intent_id, owner, request.name, path))
        except CredentialError:
            self._clear_all([request.intent_id for request in requests])
            raise
        return kept

    def commit(self, kept: Sequence[Kept]) -> None:
        """CommitCredentialVersion for all of these, or an error that must end the transaction it is called
        in.
        """
        steps = [Step(one.intent_id, one.path, VaultState.LIVE) for one in kept]
        answers = self.driver.step(
            "CommitCredentialVersion", lambda: transitions.commit_credential_version(steps, self.actor)
        )
        for one, answer in zip(kept, answers, strict=True):
            _require_committed(one, answer)

    def discard(self, kept: Sequence[Kept]) -> None:
        """Destroy what will not be committed. Outside a transaction; what fails is left to the reconciler."""
        self._clear_all([one.intent_id for one in kept])

    def _clear_all(self, intent_ids: Sequence[UUID]) -> None:
        for intent_id in intent_ids:
            self.driver.clear(intent_id, "discarded")

    # --- connections --------------------------------------------------------------------------------------

    def create_connection(
        self, name: str, kind: str, settings: Mapping[str, Any], material: Material
    ) -> CredentialVersion:
        """A new connection with its first version."""
        materials.check_names("name", {name: None}, 1)
        materials.check_settings(settings)
        materials.check_fields(kind, material)
        materials.check_material(name, material, self.bounds.bytes_max)
        made = versions.ensure_connection(name, kind, settings, self.actor)
        if made.current_number or made.retired_at or made.kind != kind:
            raise CredentialConflict(f"There already is a connection {name}.")
        return self._rotate(made, material, expected_number=0)

    def rotate_connection(
        self, name: str, material: Material, expected_number: int | None = None
    ) -> CredentialVersion:
        """A new current version. Of several at once one wins; each other destroys what it wrote and is told.

        `expected_number` is what the caller saw as current; without it, what is current now.
        """
        found = store.persistently(lambda: Connection.objects.filter(name=name).first())
        if found is None or found.retired_at is not None:
            raise ConnectionUnknown(f"There is no connection {name}, or it is retired.")
        materials.check_fields(found.kind, material)
        expected = found.current_number if expected_number is None else expected_number
        if expected != found.current_number:
            raise CredentialConflict(f"Version {found.current_number} of {name} is current, not {expected}.")
        return self._rotate(found, material, expected)

    def _rotate(self, connection: Connection, material: Material, expected_number: int) -> CredentialVersion:
        kept = self._keep(versions.owner_of(connection.pk), {connection.name: material}, expected_number)
        try:
            self.commit(kept)
        except CredentialConflict:
            self.discard(kept)
            raise
        committed = CredentialVersion.objects.filter(intent_id=kept[0].intent_id)
        return store.persistently(committed.get)

    def retire_connection(self, name: str) -> Connection:
        return versions.retire_connection(name, self.actor)

    def release_owner(self, *owners: str) -> int:
        """What these own is to be destroyed: a sweep does it. May run in the caller's transaction."""
        return versions.release_owner(owners, self.actor)

    def acting_as(self, actor: Actor) -> CredentialService:
        return CredentialService(self.secrets, actor, replace(self.bounds), self.driver.witness)


def _require_committed(one: Kept, answer: Answer) -> None:
    if isinstance(answer, Accepted):
        return
    if answer.reason in ("NOT_CURRENT", "RETIRED", "NAME_TAKEN"):
        raise CredentialConflict(f"{one.name}: another version was committed first ({answer.reason}).")
    raise IntentGone(f"{one.name}: its intent is no longer Written ({answer.reason}).")
