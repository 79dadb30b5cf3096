"""The rights that Remora needs in Vault, and a function that installs them: policies, token roles, the
AppRole.

Run by whoever sets Vault up (the embedded stack, an operator with `manage.py secrets --install`), never by
Remora's own login, which could not. What Remora logs in with can neither read nor write a secret: it may
only have one-use write tokens and one-path read tokens made, by roles whose policies are fixed here. So it
never needs the right to write policies, which would be the right to everything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from credentials.kv import SecretStore
from credentials.secret import Secret
from credentials.vault import VaultSession

WRITE_TOKEN_S_MAX: Final = 300

WRITE_RULES: Final = """
path "{mount}/data/{prefix}/*" {{ capabilities = ["create", "update"] }}
"""
# The path's name is the alias that the token was made for: exactly this path, and no right to write
# policies needed.
READ_RULES: Final = """
path "{mount}/data/{prefix}/{{{{identity.entity.aliases.{token_mount}.name}}}}" {{ capabilities = ["read"] }}
path "auth/token/renew-self" {{ capabilities = ["update"] }}
path "auth/token/lookup-self" {{ capabilities = ["read"] }}
path "auth/token/revoke-self" {{ capabilities = ["update"] }}
"""
SERVICE_RULES: Final = """
path "auth/token/create/{write_role}" {{ capabilities = ["update"] }}
path "auth/token/create/{read_role}" {{ capabilities = ["update"] }}
path "auth/token/lookup-accessor" {{ capabilities = ["update"] }}
path "auth/token/revoke-accessor" {{ capabilities = ["update"] }}
path "auth/token/lookup-self" {{ capabilities = ["read"] }}
path "auth/token/renew-self" {{ capabilities = ["update"] }}
path "{mount}/subkeys/{prefix}/*" {{ capabilities = ["read"] }}
path "{mount}/destroy/{prefix}/*" {{ capabilities = ["create", "update"] }}
path "{mount}/metadata/{prefix}/*" {{ capabilities = ["read", "list", "delete"] }}
path "{mount}/metadata/{prefix}" {{ capabilities = ["list"] }}
"""
# Entities are made by Vault when a read token names a path, and cannot be told from others by their names.
# Whoever shares a namespace with other users of Vault may withhold this; the entities then stay, and can do
# nothing.
ENTITY_RULES: Final = """
path "identity/lookup/entity" {{ capabilities = ["create", "update"] }}
path "identity/entity/id/*" {{ capabilities = ["delete"] }}
path "sys/internal/ui/mounts/auth/token" {{ capabilities = ["read"] }}
"""


@dataclass(frozen=True, slots=True)
class AppRoleLogin:
    """What a Remora process logs in with."""

    role_id: str
    secret_id: Secret


@dataclass(frozen=True, slots=True)
class AccessPlan:
    """What to install. The token times are those of Remora's own login, not of read or write tokens."""

    mount: str
    prefix: str
    name: str = "remora"
    approle_mount: str = "approle"
    token_ttl_s: int = 3600
    token_max_ttl_s: int = 86_400
    entity_cleanup: bool = True

    @property
    def service_policy(self) -> str:
        return f"{self.name}-service"


def install_access(admin: VaultSession, plan: AccessPlan) -> None:
    """Install or bring up to date everything but a secret id. Safe to repeat."""
    _ensure_mount(admin, plan)
    store = SecretStore(admin, plan.mount, plan.prefix, plan.name)
    names = {
        "mount": plan.mount,
        "prefix": plan.prefix,
        "token_mount": _auth_accessor(admin, "token/"),
        "write_role": store.write_role,
        "read_role": store.read_role,
    }
    service = SERVICE_RULES + (ENTITY_RULES if plan.entity_cleanup else "")
    for policy, rules in (
        (store.write_role, WRITE_RULES),
        (store.read_role, READ_RULES),
        (plan.service_policy, service),
    ):
        body = {"policy": rules.format(**names)}
        admin.call("post", f"sys/policies/acl/{policy}", f"installation of policy {policy}", body)
    _ensure_token_role(
        admin, store.write_role, token_num_uses=1, renewable=False, token_explicit_max_ttl=WRITE_TOKEN_S_MAX
    )
    _ensure_token_role(admin, store.read_role, allowed_entity_aliases=["*"], renewable=True)
    if f"{plan.approle_mount}/" not in admin.call("get", "sys/auth", "look-up of logins").data:
        admin.call(
            "post", f"sys/auth/{plan.approle_mount}", "enabling of the AppRole login", {"type": "approle"}
        )
    role: dict[str, object] = {
        "token_policies": [plan.service_policy],
        "token_no_default_policy": True,
        "token_ttl": plan.token_ttl_s,
        "token_max_ttl": plan.token_max_ttl_s,
        "token_type": "service",
    }
    admin.call("post", f"auth/{plan.approle_mount}/role/{plan.name}", "installation of the AppRole", role)


def issue_approle_login(admin: VaultSession, plan: AccessPlan) -> AppRoleLogin:
    """A new secret id for the AppRole; those that were issued before stay good."""
    role = f"auth/{plan.approle_mount}/role/{plan.name}"
    role_id = admin.call("get", f"{role}/role-id", "look-up of the role id").data["role_id"]
    secret_id = admin.call("post", f"{role}/secret-id", "creation of a secret id", {}).data["secret_id"]
    return AppRoleLogin(str(role_id), Secret(secret_id))


def _ensure_mount(admin: VaultSession, plan: AccessPlan) -> None:
    mounts = admin.call("get", "sys/mounts", "look-up of stores").data
    if f"{plan.mount}/" not in mounts:
        body = {"type": "kv", "options": {"version": "2"}}
        admin.call("post", f"sys/mounts/{plan.mount}", "mounting of the store", body)


def _ensure_token_role(admin: VaultSession, role: str, **given: object) -> None:
    """Tokens of both roles are orphans: they do not end with the login that had them made."""
    body = {
        "allowed_policies": [role],
        "orphan": True,
        "token_no_default_policy": True,
        "token_type": "service",
        **given,
    }
    admin.call("post", f"auth/token/roles/{role}", f"installation of role {role}", body)


def _auth_accessor(admin: VaultSession, mount: str) -> str:
    return str(admin.call("get", "sys/auth", "look-up of logins").data[mount]["accessor"])
