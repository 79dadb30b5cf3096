"""The credential reconciler: every intent left behind reaches Abandoned, every retired version is
destroyed, every closed path is forgotten once that is safe, every lapsed grant is dropped.

One `reconcile_credentials` is a bounded pass. It may run anywhere, any number at a time: each step is
idempotent in Vault and compared under the row's lock in the ledger. It never commits: only who holds the
material's promise does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import Any, Final

from django.db.models.functions import Now

from credentials import store, versions
from credentials.errors import CasConflict, VaultError, VaultForbidden, VaultRefused
from credentials.grants import Grants
from credentials.intents import IntentDriver, Witness, no_witness
from credentials.kv import SecretStore
from credentials.models import CredentialIntent, CredentialVersion, SecretPath, VersionState
from credentials.protocol import OPEN_STATES
from credentials.store import Actor

log = logging.getLogger(__name__)

LEFT_BEHIND: Final = "left behind by its writer"
# These say something of one path. Any other error says that Vault cannot be used now, and ends the pass.
_OF_ONE_PATH: Final = (VaultForbidden, VaultRefused, CasConflict)


@dataclass(frozen=True, slots=True)
class Pace:
    """When to act: never whether it is allowed."""

    quiet_s: int
    forget_s: int
    read_token_s: int
    rows_max: int


@dataclass(slots=True)
class Pass:
    """What one pass did."""

    cleared: int = 0
    retired: int = 0
    destroyed: int = 0
    forgotten: int = 0
    grants_dropped: int = 0
    stuck: int = 0
    stopped_by: str = ""
    problems: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Reconciler:
    """One pass' tools."""

    def __init__(self, secrets: SecretStore, actor: Actor, pace: Pace, witness: Witness = no_witness) -> None:
        self.secrets, self.actor, self.pace = secrets, actor, pace
        self.driver = IntentDriver(secrets, actor, witness=witness)
        self.result = Pass()

    def reconcile_credentials(self) -> Pass:
        """One pass over everything, in the order of how much a leftover matters."""
        try:
            self.clear_intents()
            self.destroy_versions()
            self.forget_paths()
            self.result.grants_dropped = Grants(self.secrets).sweep(
                self.pace.read_token_s * 2, self.pace.rows_max
            )
        except VaultError as error:
            self.result.stopped_by = str(error)
            log.warning("ReconcilerStopped", extra={"error": str(error), "class": error.failure_class})
        return self.result

    def clear_intents(self) -> None:
        """Open intents that their writer has not touched for a while."""
        left = CredentialIntent.objects.filter(
            state__in=OPEN_STATES, touched_at__lte=Now() - timedelta(seconds=self.pace.quiet_s)
        ).order_by("touched_at")
        for intent_id in left.values_list("pk", flat=True)[: self.pace.rows_max]:
            self.result.cleared += self._on_one_path(
                lambda: self.driver.drive_to_end(intent_id, LEFT_BEHIND),  # noqa: B023 (called at once)
                # At the back of the queue: those that cannot be cleared must not keep others waiting.
                lambda why: self._put_back(intent_id, why),  # noqa: B023
            )

    def _put_back(self, intent_id: Any, why: str) -> None:
        open_one = CredentialIntent.objects.filter(pk=intent_id, state__in=OPEN_STATES)
        store.transact_durably(lambda: open_one.update(touched_at=Now(), why=why))

    def destroy_versions(self) -> None:
        """Superseded versions that nobody has pinned, and those whose destruction was cut short."""
        self.result.retired = versions.begin_destruction(self.pace.rows_max, self.actor)
        claimed = CredentialVersion.objects.filter(state=VersionState.DESTROYING).order_by("superseded_at")
        for version in claimed[: self.pace.rows_max]:
            self.result.destroyed += self._on_one_path(lambda: self._destroy_version(version))  # noqa: B023

    def _destroy_version(self, version: CredentialVersion) -> bool:
        self.driver.step("destroy", lambda: self.secrets.destroy(version.path))
        self.secrets.forget_reader(version.path)
        self.driver.step("DestroyRetiredSecret", lambda: versions.finish_destruction(version, self.actor))
        return True

    def forget_paths(self) -> None:
        """Remove the metadata of closed paths, once no write to them can come any more.

        Two things must be so: Vault does not know the path's only write token; and it has not for several
        times as long as Vault lets a request run, since a request may have been admitted just before the
        token ended.
        """
        closed = SecretPath.objects.filter(closed_at__isnull=False, forgotten_at=None)
        unproved = closed.filter(writer_dead_at=None).order_by("closed_at")
        for row in unproved[: self.pace.rows_max]:
            self._on_one_path(lambda: self._prove_writer_dead(row))  # noqa: B023
        due = closed.filter(writer_dead_at__lte=Now() - timedelta(seconds=self.pace.forget_s))
        for row in due.order_by("writer_dead_at")[: self.pace.rows_max]:
            self.result.forgotten += self._on_one_path(lambda: self._forget(row))  # noqa: B023

    def _prove_writer_dead(self, row: SecretPath) -> bool:
        if not self.secrets.is_dead(row.writer_accessor):
            self.secrets.revoke(row.writer_accessor)
            if not self.secrets.is_dead(row.writer_accessor):
                return False
        same = SecretPath.objects.filter(pk=row.pk, writer_dead_at=None)
        return bool(store.transact_durably(lambda: same.update(writer_dead_at=Now())))

    def _forget(self, row: SecretPath) -> bool:
        self.driver.step("forget", lambda: self.secrets.forget(row.path))
        same = SecretPath.objects.filter(pk=row.pk, forgotten_at=None)
        return bool(store.transact_durably(lambda: same.update(forgotten_at=Now())))

    def _on_one_path(self, work: Callable[[], bool], otherwise: Callable[[str], None] | None = None) -> bool:
        try:
            return work()
        except _OF_ONE_PATH as error:
            self.result.stuck += 1
            if len(self.result.problems) < 20:
                self.result.problems.append(str(error))
            if otherwise is not None:
                otherwise(str(error))
            return False
