"""Credentials as this deployment has them: from Django's settings to the objects that do the work."""

from __future__ import annotations

from django.conf import settings

from credentials.access import AccessPlan
from credentials.grants import Grants
from credentials.kv import SecretStore
from credentials.reconciler import Pace, Reconciler
from credentials.secret import Secret
from credentials.service import Bounds, CredentialService
from credentials.store import Actor
from credentials.vault import VaultConfig, session_for


def vault_config() -> VaultConfig:
    """An AppRole where one is set; else a token or a file with one."""
    return VaultConfig(
        addr=settings.VAULT_ADDR.rstrip("/"),
        token=Secret(settings.VAULT_TOKEN) if settings.VAULT_TOKEN else None,
        token_file=settings.VAULT_TOKEN_FILE,
        role_id=settings.VAULT_ROLE_ID,
        secret_id=Secret(settings.VAULT_SECRET_ID) if settings.VAULT_SECRET_ID else None,
        secret_id_file=settings.VAULT_SECRET_ID_FILE,
        approle_mount=settings.REMORA_VAULT_APPROLE_MOUNT,
        namespace=settings.VAULT_NAMESPACE,
        ca_file=settings.VAULT_CACERT,
        connect_ms=settings.REMORA_VAULT_CONNECT_MS,
        answer_ms=settings.REMORA_VAULT_ANSWER_MS,
    )


def secret_store() -> SecretStore:
    plan = access_plan()
    return SecretStore(session_for(vault_config()), plan.mount, plan.prefix, plan.name)


def credential_service(actor: Actor) -> CredentialService:
    bounds = Bounds(
        bytes_max=settings.REMORA_SECRET_BYTES_MAX,
        secrets_max=settings.REMORA_SECRETS_MAX,
        write_token_s=settings.REMORA_WRITE_TOKEN_S,
    )
    return CredentialService(secret_store(), actor, bounds)


def reconciler(duty: str) -> Reconciler:
    """For one pass."""
    pace = Pace(
        quiet_s=settings.REMORA_CREDENTIAL_QUIET_S,
        forget_s=settings.REMORA_FORGET_S,
        read_token_s=settings.REMORA_READ_TOKEN_S,
        rows_max=settings.REMORA_SWEEP_ROWS_MAX,
    )
    return Reconciler(secret_store(), Actor("duty", duty), pace)


def grants() -> Grants:
    return Grants(secret_store())


def access_plan() -> AccessPlan:
    prefix = settings.REMORA_VAULT_PREFIX
    return AccessPlan(
        mount=settings.REMORA_VAULT_MOUNT,
        prefix=prefix,
        name=prefix.replace("/", "-"),
        approle_mount=settings.REMORA_VAULT_APPROLE_MOUNT,
    )
