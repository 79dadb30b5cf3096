"""The store in a real OpenBao: what each operation leaves there, and what a late or doubled request finds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from credentials.errors import (
    CasConflict,
    ReadTokenExpired,
    SecretMissing,
    VaultForbidden,
    VaultTimeout,
    VaultUnavailable,
)
from credentials.ids import new_path
from credentials.kv import FenceOutcome, PathState
from credentials.secret import Secret
from tests.credentials.conftest import CANARY, Vault
from tests.credentials.relay import Held, Relay
from tests.waiting import wait_until

MATERIAL = {"username": Secret("u"), "password": Secret(f"{CANARY}-kv")}


def test_a_write_lands_once_and_its_token_is_spent(vault: Vault) -> None:
    secrets, path = vault.secrets, new_path()
    token = secrets.write_token(60)
    assert not secrets.is_dead(token.accessor)
    secrets.write(path, MATERIAL, token)
    assert secrets.read_back(path) is PathState.LIVE
    with pytest.raises(VaultForbidden):
        secrets.write(new_path(), MATERIAL, token)
    wait_until(lambda: secrets.is_dead(token.accessor), 10, "Vault removed the spent token")


def test_a_fenced_path_refuses_the_write(vault: Vault) -> None:
    secrets, path = vault.secrets, new_path()
    token = secrets.write_token(60)
    assert secrets.fence(path, 60) is FenceOutcome.FENCED
    with pytest.raises(CasConflict):
        secrets.write(path, MATERIAL, token)
    assert secrets.read_back(path) is PathState.DESTROYED
    assert vault.live() == set()


def test_a_fence_that_comes_second_says_that_the_write_landed(vault: Vault) -> None:
    secrets, path = vault.secrets, new_path()
    secrets.write(path, MATERIAL, secrets.write_token(60))
    assert secrets.fence(path, 60) is FenceOutcome.LANDED
    assert secrets.read_back(path) is PathState.LIVE


def test_fencing_and_destroying_may_be_repeated(vault: Vault) -> None:
    secrets, path, other = vault.secrets, new_path(), new_path()
    assert [secrets.fence(path, 60) for _ in range(2)] == [FenceOutcome.FENCED] * 2
    secrets.write(other, MATERIAL, secrets.write_token(60))
    secrets.destroy(other)
    secrets.destroy(other)
    assert secrets.fence(other, 60) is FenceOutcome.FENCED
    assert vault.live() == set()


def test_a_write_held_back_in_the_network_is_refused_after_the_fence(vault: Vault, relay: Relay) -> None:
    path, slow = new_path(), vault.through(relay, answer_ms=300).secrets
    held = relay.next("hold", "POST", f"/data/{vault.plan.prefix}/{path}")
    with pytest.raises(VaultTimeout):
        slow.write(path, MATERIAL, slow.write_token(60))
    assert vault.secrets.fence(path, 60) is FenceOutcome.FENCED
    answer = held.held[0].send()
    assert b" 400 " in answer.split(b"\r\n")[0]
    assert b"check-and-set" in answer
    assert vault.live() == set()


def test_a_write_that_arrives_after_its_path_was_forgotten_finds_its_token_dead(
    vault: Vault, relay: Relay
) -> None:
    """The order in which the reconciler proceeds: fence, see the token dead, only then remove metadata."""
    path, slow = new_path(), vault.through(relay, answer_ms=300).secrets
    held = relay.next("hold", "POST", f"/data/{vault.plan.prefix}/{path}")
    token = slow.write_token(60)
    with pytest.raises(VaultTimeout):
        slow.write(path, MATERIAL, token)
    secrets = vault.secrets
    secrets.fence(path, 60)
    secrets.revoke(token.accessor)
    assert secrets.is_dead(token.accessor)
    secrets.forget(path)
    assert secrets.read_back(path) is PathState.ABSENT
    assert b" 403 " in held.held[0].send().split(b"\r\n")[0]
    assert vault.audit.paths() == []


def test_without_the_fence_the_late_write_would_land(vault: Vault, relay: Relay) -> None:
    """What the fence is for: the same late request, to a path at which nothing was found."""
    path, slow = new_path(), vault.through(relay, answer_ms=300).secrets
    held = relay.next("hold", "POST", f"/data/{vault.plan.prefix}/{path}")
    with pytest.raises(VaultTimeout):
        slow.write(path, MATERIAL, slow.write_token(60))
    assert vault.secrets.read_back(path) is PathState.ABSENT
    assert b" 200 " in held.held[0].send().split(b"\r\n")[0]
    assert vault.live() == {path}


def test_a_write_whose_answer_was_lost_is_found_by_its_version(vault: Vault, relay: Relay) -> None:
    path, lossy = new_path(), vault.through(relay).secrets
    relay.next("lose", "POST", "/data/")
    with pytest.raises(VaultUnavailable):
        lossy.write(path, MATERIAL, lossy.write_token(60))
    assert vault.secrets.read_back(path) is PathState.LIVE


def test_a_request_that_something_doubles_is_carried_out_once(vault: Vault, relay: Relay) -> None:
    path, lossy = new_path(), vault.through(relay).secrets
    lossy.write(path, MATERIAL, lossy.write_token(60))
    written = next(raw for raw in relay.seen if b"/data/" in raw.split(b"\r\n")[0])
    vault.secrets.destroy(path)
    vault.secrets.forget(path)
    assert b" 403 " in Held(written, relay.upstream).send().split(b"\r\n")[0]
    assert vault.audit.paths() == []


def test_destroyed_means_every_version_also_a_deleted_one(vault: Vault) -> None:
    secrets, path = vault.secrets, new_path()
    secrets.write(path, MATERIAL, secrets.write_token(60))
    data = f"{vault.plan.mount}/data/{vault.plan.prefix}/{path}"
    vault.admin.call("delete", data, "deletion of the latest version")
    assert secrets.read_back(path) is PathState.LIVE, "a deleted version can be brought back"
    secrets.destroy(path)
    vault.admin.call(
        "post", data.replace("/data/", "/undelete/"), "undeletion", {"versions": [1]}, missing_ok=True
    )
    assert vault.live() == set()


def test_a_read_token_reads_its_own_path_and_no_other(vault: Vault) -> None:
    secrets, mine, other = vault.secrets, new_path(), new_path()
    for path in (mine, other):
        secrets.write(path, MATERIAL, secrets.write_token(60))
    token = secrets.read_token(mine, 60)
    assert secrets.read(token)["password"] == MATERIAL["password"]
    with pytest.raises(VaultForbidden):
        secrets.read(replace(token, path=other))
    for method, url in (
        ("list", "metadata"),
        ("get", "subkeys"),
        ("post", "destroy"),
        ("delete", "metadata"),
    ):
        with pytest.raises(VaultForbidden):
            secrets.session.call_as(
                token.token, method, f"{vault.plan.mount}/{url}/{vault.plan.prefix}/{mine}", "other use", {}
            )


def test_a_revoked_read_token_reads_nothing(vault: Vault) -> None:
    secrets, path = vault.secrets, new_path()
    secrets.write(path, MATERIAL, secrets.write_token(60))
    token = secrets.read_token(path, 60)
    assert secrets.renew(token, 120) > 60
    secrets.revoke(token.accessor)
    with pytest.raises(ReadTokenExpired):
        secrets.read(token)
    with pytest.raises(ReadTokenExpired):
        secrets.renew(token, 60)


def test_removing_a_reader_ends_every_token_of_its_path(vault: Vault) -> None:
    secrets, path = vault.secrets, new_path()
    secrets.write(path, MATERIAL, secrets.write_token(60))
    token = secrets.read_token(path, 60)
    assert secrets.forget_reader(path)
    with pytest.raises((ReadTokenExpired, VaultForbidden)):
        secrets.read(token)


def test_a_deleted_secret_is_missing_for_good(vault: Vault) -> None:
    secrets, path = vault.secrets, new_path()
    secrets.write(path, MATERIAL, secrets.write_token(60))
    vault.admin.call("delete", f"{vault.plan.mount}/data/{vault.plan.prefix}/{path}", "deletion")
    with pytest.raises(SecretMissing, match=path):
        secrets.read(secrets.read_token(path, 60))


def test_remoras_own_login_can_neither_read_nor_write_a_secret(vault: Vault) -> None:
    secrets, path = vault.secrets, new_path()
    secrets.write(path, MATERIAL, secrets.write_token(60))
    url = f"{vault.plan.mount}/data/{vault.plan.prefix}/{path}"
    for method in ("get", "post"):
        with pytest.raises(VaultForbidden):
            secrets.session.call(method, url, "direct use", {"data": {}} if method == "post" else None)
