"""A store of its own in the run's real OpenBao for each test process, with Remora's policies and AppRole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from uuid import uuid4

import pytest
from django.conf import settings
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.dispatch import receiver

from credentials.access import AccessPlan, install_access, issue_approle_login
from credentials.grants import Grants
from credentials.kv import SecretStore
from credentials.reconciler import Pace, Reconciler
from credentials.secret import Secret
from credentials.service import Bounds, CredentialService
from credentials.store import Actor
from credentials.vault import VaultConfig, VaultSession
from tests.credentials.relay import Relay

CANARY = "CANARY-7f3a91"
TEST = Actor("command", "test")
AT_ONCE = Pace(quiet_s=0, forget_s=0, read_token_s=30, rows_max=500)


@dataclass(frozen=True)
class Vault:
    """One prefix of one mount, reached directly by an administrator and by Remora's own AppRole login."""

    admin: VaultSession
    plan: AccessPlan
    config: VaultConfig

    @property
    def secrets(self) -> SecretStore:
        return SecretStore(VaultSession(self.config), self.plan.mount, self.plan.prefix, self.plan.name)

    @property
    def audit(self) -> SecretStore:
        """The administrator's own view: what really is there, whatever Remora says."""
        return SecretStore(self.admin, self.plan.mount, self.plan.prefix, self.plan.name)

    def service(self, witness: object = None) -> CredentialService:
        return CredentialService(self.secrets, TEST, Bounds(), witness or (lambda point: None))  # type: ignore[arg-type]

    def reconciler(self, pace: Pace = AT_ONCE) -> Reconciler:
        return Reconciler(self.secrets, TEST, pace)

    def grants(self) -> Grants:
        return Grants(self.secrets)

    def through(self, relay: Relay, answer_ms: int = 10_000) -> Vault:
        return replace(self, config=replace(self.config, addr=relay.addr, answer_ms=answer_ms))

    def live(self) -> set[str]:
        """Paths that hold material, by OpenBao's own listing."""
        return {path for path in self.audit.paths() if self.audit.live_versions(path)}


@receiver(connection_created)
def may_truncate(connection: BaseDatabaseWrapper, **_: object) -> None:
    """These tests commit, so the tables are emptied after each; only a test's session may say that."""
    with connection.cursor() as cursor:
        cursor.execute("SET remora.allow_truncate = 'on'")


@pytest.fixture(scope="session")
def vault_mount() -> Iterator[tuple[VaultSession, str]]:
    mount = f"kv-{os.getpid()}-{uuid4().hex[:8]}"
    admin = VaultSession(VaultConfig(settings.VAULT_ADDR, token=Secret(settings.VAULT_TOKEN)))
    yield admin, mount
    admin.call("delete", f"sys/mounts/{mount}", "unmounting")
    admin.call("delete", f"sys/auth/{mount}", "removal of the login")


@pytest.fixture(scope="session")
def vault_login(vault_mount: tuple[VaultSession, str]) -> VaultConfig:
    admin, mount = vault_mount
    plan = AccessPlan(mount, "+", name=mount, approle_mount=mount)
    install_access(admin, plan)
    login = issue_approle_login(admin, plan)
    return VaultConfig(
        settings.VAULT_ADDR, role_id=login.role_id, secret_id=login.secret_id, approle_mount=mount
    )


@pytest.fixture
def vault(vault_mount: tuple[VaultSession, str], vault_login: VaultConfig) -> Vault:
    admin, mount = vault_mount
    return Vault(admin, AccessPlan(mount, uuid4().hex[:12], name=mount, approle_mount=mount), vault_login)


@pytest.fixture
def relay(vault: Vault) -> Iterator[Relay]:
    relay = Relay(settings.VAULT_ADDR)
    yield relay
    relay.close()
