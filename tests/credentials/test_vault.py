"""Vault in real life: tokens that end, seals, refusals, silence. Each is a typed error that says whose turn
it is.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.conf import settings

from credentials.errors import (
    FailureClass,
    VaultError,
    VaultExpiredToken,
    VaultForbidden,
    VaultMisconfigured,
    VaultSealed,
    VaultTimeout,
)
from credentials.ids import new_path
from credentials.secret import Secret
from credentials.vault import VaultConfig, VaultSession, session_for
from tests.credentials.conftest import Vault
from tests.credentials.relay import Relay
from tests.credentials.server import OwnServer, own_server
from tests.credentials.world import in_a_process_of_its_own
from tests.waiting import wait_until

LOGIN = "/login HTTP"
RENEWAL = "/renew-self HTTP"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnServer]:
    with own_server(tmp_path_factory.mktemp("bao")) as server:
        yield server


def count(relay: Relay, part: str) -> int:
    return sum(part in line for line in relay.lines())


def test_a_login_is_renewed_before_it_ends_and_made_anew_before_it_cannot_be(
    server: OwnServer,
) -> None:
    relay = Relay(server.addr)
    session = server.vault(token_ttl_s=2, token_max_ttl_s=4).through(relay).secrets.session
    seen = set()

    def worked_on() -> bool:
        session.call("get", "auth/token/lookup-self", "work")
        seen.add(session._usable_login().token.reveal())
        return len(seen) >= 3

    wait_until(worked_on, 20, "three logins in succession, with no call refused in between")
    assert count(relay, LOGIN) == len(seen)
    assert count(relay, RENEWAL) >= 2
    relay.close()


def test_a_login_that_was_revoked_is_made_anew_once(vault: Vault, relay: Relay) -> None:
    secrets = vault.through(relay).secrets
    secrets.paths()
    vault.admin.call(
        "post", "auth/token/revoke", "revocation", {"token": secrets.session._usable_login().token}
    )
    assert secrets.paths() == []
    assert count(relay, LOGIN) == 2


def test_a_denial_costs_no_login(vault: Vault, relay: Relay) -> None:
    session = vault.through(relay).secrets.session
    for _ in range(3):
        with pytest.raises(VaultForbidden, match="denied to a token that is valid") as raised:
            session.call("get", f"{vault.plan.mount}/data/elsewhere/x", "read", None)
        assert raised.value.failure_class is FailureClass.PERMANENT
        assert "elsewhere/x" in str(raised.value)
    assert count(relay, LOGIN) == 1


def test_a_dead_static_token_waits_for_an_operator(vault: Vault, tmp_path: Path) -> None:
    token = vault.admin.call("post", "auth/token/create", "creation", {"ttl": "60s"}).body["auth"][
        "client_token"
    ]
    session = VaultSession(VaultConfig(settings.VAULT_ADDR, token=Secret(token)))
    session.call("get", "auth/token/lookup-self", "work")
    vault.admin.call("post", "auth/token/revoke", "revocation", {"token": token})
    with pytest.raises(VaultExpiredToken) as raised:
        session.call("get", "auth/token/lookup-self", "work")
    assert raised.value.failure_class is FailureClass.OPERATOR
    with pytest.raises(VaultExpiredToken):
        VaultSession(session.config).call("get", "auth/token/lookup-self", "work")


def test_a_token_file_that_an_agent_rewrites_is_read_again(vault: Vault, tmp_path: Path) -> None:
    def token() -> str:
        body = vault.admin.call("post", "auth/token/create", "creation", {"ttl": "60s"}).body
        return str(body["auth"]["client_token"])

    file, first = tmp_path / "token", token()
    file.write_text(first + "\n")
    session = VaultSession(VaultConfig(settings.VAULT_ADDR, token_file=str(file)))
    session.call("get", "auth/token/lookup-self", "work")
    vault.admin.call("post", "auth/token/revoke", "revocation", {"token": first})
    file.write_text(token())
    session.call("get", "auth/token/lookup-self", "work")
    file.unlink()
    with pytest.raises(VaultMisconfigured, match="cannot be read"):
        VaultSession(session.config).call("get", "auth/token/lookup-self", "work")


def test_many_threads_share_one_new_login(vault: Vault, relay: Relay) -> None:
    secrets = vault.through(relay).secrets
    barrier, failures = threading.Barrier(8), []

    def work() -> None:
        barrier.wait()
        try:
            secrets.paths()
        except VaultError as error:
            failures.append(error)

    def all_at_once() -> None:
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    all_at_once()
    assert count(relay, LOGIN) == 1
    token = secrets.session._usable_login().token
    vault.admin.call("post", "auth/token/revoke", "revocation", {"token": token})
    all_at_once()
    assert failures == []
    assert count(relay, LOGIN) == 2


def test_a_sealed_vault_waits_for_an_operator_and_needs_no_restart(server: OwnServer) -> None:
    secrets = server.vault().secrets
    secrets.paths()
    server.seal()
    try:
        with pytest.raises(VaultSealed) as raised:
            secrets.write_token(60)
        assert raised.value.failure_class is FailureClass.OPERATOR
        trouble = secrets.session.condition()
        assert isinstance(trouble, VaultSealed)
        assert "unseal" in str(trouble)
    finally:
        server.unseal()
    assert secrets.session.condition() is None
    assert secrets.paths() == []


def test_a_silent_vault_is_a_timeout(server: OwnServer) -> None:
    vault = server.vault()
    session = VaultSession(server.config(answer_ms=300))
    session.call("get", "auth/token/lookup-self", "work")
    server.pause()
    try:
        with pytest.raises(VaultTimeout) as raised:
            session.call("get", "auth/token/lookup-self", "work")
        assert raised.value.failure_class is FailureClass.RETRYABLE
    finally:
        server.resume()
    assert vault.secrets.paths() == []


def test_tls_with_a_private_ca(tmp_path: Path) -> None:
    with own_server(tmp_path, tls=True) as server:
        assert server.vault().secrets.paths() == []
        distrustful = VaultSession(server.config(ca_file=""))
        with pytest.raises(VaultMisconfigured) as raised:
            distrustful.call("get", "auth/token/lookup-self", "work")
        assert raised.value.failure_class is FailureClass.OPERATOR
        missing = VaultSession(server.config(ca_file=str(tmp_path / "none.pem")))
        with pytest.raises(VaultMisconfigured):
            missing.call("get", "auth/token/lookup-self", "work")
        plain = VaultSession(VaultConfig(server.addr.replace("https", "http"), token=server.root_token))
        with pytest.raises(VaultError):
            plain.call("get", "auth/token/lookup-self", "work")


def test_a_namespace_of_its_own(server: OwnServer) -> None:
    VaultSession(server.config()).call("post", "sys/namespaces/team", "creation of a namespace", {})
    vault = server.vault(namespace="team")
    secrets, path = vault.secrets, new_path()
    secrets.write(path, {"value": Secret("x")}, secrets.write_token(60))
    assert secrets.read(secrets.read_token(path, 60))["value"] == Secret("x")
    assert vault.live() == {path}
    outside = VaultSession(server.config())
    assert (
        outside.call("get", f"{vault.plan.mount}/metadata/remora/{path}", "look", missing_ok=True).status
        == 404
    )


@pytest.mark.django_db
def test_a_fork_gets_a_session_of_its_own(vault: Vault) -> None:
    session = session_for(vault.config)
    session.call("get", "auth/token/lookup-self", "work")

    def child() -> None:
        mine = session_for(vault.config)
        assert mine is not session
        assert mine._login is None
        mine.call("get", "auth/token/lookup-self", "work")

    assert in_a_process_of_its_own(child) == 0
    assert session_for(vault.config) is session
    session.call("get", "auth/token/lookup-self", "work")
    assert os.getpid() > 0
