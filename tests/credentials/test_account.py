"""The reconciler under trouble, and `manage.py secrets`: OpenBao's own listing against the ledger."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import call_command

from credentials import account, config
from credentials.errors import VaultError, VaultForbidden
from credentials.ids import new_path
from credentials.models import CredentialIntent, CredentialVersion, SecretPath
from credentials.protocol import IntentState
from credentials.reconciler import Pace
from credentials.secret import Secret
from tests.credentials.conftest import CANARY, Vault
from tests.credentials.relay import Relay, http_answer
from tests.credentials.server import OwnServer, own_server
from tests.credentials.world import (
    Stopped,
    ended,
    forked,
    raising_at,
    require_settled,
    settle,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnServer]:
    with own_server(tmp_path_factory.mktemp("bao")) as server:
        yield server


@pytest.fixture
def command(vault: Vault, settings: Any) -> Any:
    """`manage.py secrets` on this test's own prefix: its exit status, and what it printed."""
    assert vault.config.secret_id is not None
    settings.VAULT_ROLE_ID = vault.config.role_id
    settings.VAULT_SECRET_ID = vault.config.secret_id.reveal()
    settings.REMORA_VAULT_APPROLE_MOUNT = vault.config.approle_mount
    settings.REMORA_VAULT_MOUNT = vault.plan.mount
    settings.REMORA_VAULT_PREFIX = vault.plan.prefix

    def run(*arguments: str) -> tuple[int, str]:
        out, status = io.StringIO(), 0
        try:
            call_command("secrets", *arguments, stdout=out, stderr=io.StringIO())
        except SystemExit as left:
            status = int(left.code or 0)
        return status, out.getvalue()

    return run


def leave_behind(vault: Vault, point: str, owner: str = "job:1") -> None:
    service = vault.service(raising_at(point))
    with pytest.raises(Stopped):
        service.commit(service.keep_secrets(owner, {"token": Secret(f"{CANARY}-left")}))


def foreign_secret(vault: Vault) -> str:
    """What the ledger knows nothing of."""
    path = new_path()
    vault.secrets.write(path, {"value": Secret("x")}, vault.secrets.write_token(60))
    return path


def test_the_account_balances_and_says_so(vault: Vault, command: Any) -> None:
    vault.service().commit(vault.service().keep_secrets("job:1", {"token": Secret(f"{CANARY}-a")}))
    status, printed = command("--json")
    assert status == 0
    assert printed.count("\n") == 1
    answer = json.loads(printed)
    assert answer["vault"]["owned"] == 1
    assert answer["vault"]["unaccounted"] == answer["vault"]["missing"] == 0
    assert answer["intents"]["CredentialIntentCommitted"]["count"] == 1
    assert CANARY not in printed + command()[1]


def test_open_intents_are_listed_with_their_age(vault: Vault, command: Any) -> None:
    leave_behind(vault, "after CompleteCredentialWrite")
    status, printed = command("--json")
    answer = json.loads(printed)
    assert status == 0, "an intent that is Writing owns what it wrote"
    assert [row["state"] for row in answer["open"]] == ["CredentialIntentWriting"]
    assert answer["open"][0]["age_s"] >= 0


def test_an_orphan_is_found_by_vaults_own_listing_and_destroyed_when_told(vault: Vault, command: Any) -> None:
    vault.service().commit(vault.service().keep_secrets("job:1", {"token": Secret("mine")}))
    orphan = foreign_secret(vault)
    status, printed = command("--json")
    assert status == 1
    assert json.loads(printed)["vault"]["paths"]["unaccounted"] == [orphan]
    assert orphan in vault.live()
    status, printed = command("--destroy", "--json")
    assert status == 0
    assert json.loads(printed)["destroyed"] == 1
    assert vault.live() == {CredentialVersion.objects.get().path}


def test_a_ledger_that_never_knew_a_path_destroys_nothing(vault: Vault, command: Any) -> None:
    """A fresh database that was pointed at another deployment's secrets."""
    orphan = foreign_secret(vault)
    status, printed = command("--destroy", "--json")
    assert status == 1
    assert "does not belong" in json.loads(printed)["trouble"]
    assert vault.live() == {orphan}


def test_a_live_version_without_its_secret_is_missing(vault: Vault, command: Any) -> None:
    vault.service().commit(vault.service().keep_secrets("job:1", {"token": Secret("x")}))
    vault.audit.forget(CredentialVersion.objects.get().path)
    status, printed = command("--json")
    assert status == 1
    assert json.loads(printed)["vault"]["missing"] == 1


def test_what_came_back_at_a_closed_path_is_left_over(vault: Vault, command: Any) -> None:
    """Only possible for somebody with rights of their own: an administrator who undid things by hand."""
    service = vault.service()
    service.discard(service.keep_secrets("job:1", {"token": Secret("x")}))
    path = SecretPath.objects.get().path
    data = f"{vault.plan.mount}/data/{vault.plan.prefix}/{path}"
    vault.admin.call("post", data, "write by hand", {"data": {"fields": {"value": "y"}}})
    assert json.loads(command("--json")[1])["vault"]["paths"]["leftover"] == [path]
    assert command("--destroy", "--json")[0] == 0
    assert vault.live() == set()


def test_without_vault_the_ledger_is_shown_and_the_trouble_said(
    vault: Vault, command: Any, settings: Any
) -> None:
    leave_behind(vault, "after CompleteCredentialWrite")
    settings.VAULT_ADDR = "http://127.0.0.1:1"
    status, printed = command("--json")
    assert status == 1
    answer = json.loads(printed)
    assert "cannot be reached" in answer["trouble"]
    assert len(answer["open"]) == 1
    assert command()[0] == 1


def test_a_sealed_vault_stops_the_pass_and_its_end_starts_it(server: OwnServer) -> None:
    vault = server.vault()
    leave_behind(vault, "after CompleteCredentialWrite", "job:1")
    leave_behind(vault, "after RecordCredentialWrite", "job:2")
    before = list(CredentialIntent.objects.order_by("pk").values())
    server.seal()
    try:
        stopped = vault.reconciler().reconcile_credentials()
        assert "sealed" in stopped.stopped_by
        service = vault.service()
        with pytest.raises(VaultError):
            service.keep_secrets("job:3", {"token": Secret("x")})
        assert service.trouble() is not None
    finally:
        server.unseal()
    assert [
        row for row in CredentialIntent.objects.order_by("pk").values() if row["owner"] != "job:3"
    ] == before
    settle(vault)


def test_one_path_that_is_refused_does_not_hold_up_the_others(vault: Vault, relay: Relay) -> None:
    for number in range(3):
        leave_behind(vault, "after RecordCredentialWrite", f"job:{number}")
    first = CredentialIntent.objects.order_by("touched_at")[0]
    denied = http_answer(403, '{"errors":["permission denied"]}')
    for _ in range(2):
        relay.next("answer", "GET", first.path, denied)
    result = vault.through(relay).reconciler().reconcile_credentials()
    assert (result.cleared, result.stuck) == (2, 1)
    assert first.path in result.problems[0]
    first.refresh_from_db()
    assert "denied" in first.why
    settle(vault)


def test_reconcilers_at_once_do_not_disturb_each_other(vault: Vault) -> None:
    points = ["after BeginCredentialWrite", "after CompleteCredentialWrite", "after RecordCredentialWrite"]
    for number in range(9):
        leave_behind(vault, points[number % 3], f"job:{number}")
    pids = [forked(lambda: vault.reconciler().reconcile_credentials()) for _ in range(3)]
    assert [ended(pid) for pid in pids] == [0] * 3
    settle(vault, periods_max=1)
    assert set(CredentialIntent.objects.values_list("state", flat=True)) == {IntentState.ABANDONED}


def test_an_intent_whose_writer_is_at_it_is_left_alone(vault: Vault) -> None:
    patient = Pace(quiet_s=60, forget_s=0, read_token_s=30, rows_max=500)
    seen: list[int] = []

    def witness(point: str) -> None:
        if point.startswith("after ") and "Commit" not in point:
            seen.append(vault.reconciler(patient).reconcile_credentials().cleared)

    service = vault.service(witness)
    service.commit(service.keep_secrets("job:1", {"token": Secret("x")}))
    assert seen
    assert not any(seen)
    require_settled(vault)


def test_a_pass_is_bounded(vault: Vault) -> None:
    for number in range(3):
        leave_behind(vault, "after RecordCredentialWrite", f"job:{number}")
    small = Pace(quiet_s=0, forget_s=0, read_token_s=30, rows_max=2)
    assert vault.reconciler(small).reconcile_credentials().cleared == 2
    settle(vault)


def test_an_owner_is_settled_when_nothing_of_it_is_left(vault: Vault) -> None:
    service = vault.service()
    service.commit(service.keep_secrets("job:1", {"token": Secret("x")}))
    leave_behind(vault, "after RecordCredentialWrite", "job:2")
    assert not account.is_settled("job:1")
    assert not account.is_settled("job:2")
    assert account.is_settled("job:3")
    service.release_owner("job:1")
    settle(vault)
    assert account.is_settled("job:1")
    assert account.is_settled("job:2")


def test_installing_prints_a_login_that_works(vault: Vault, settings: Any, command: Any) -> None:
    silent, out = io.StringIO(), io.StringIO()
    call_command("secrets", "--install", "--json", stdout=silent)
    assert list(json.loads(silent.getvalue())) == ["installed"]
    call_command("secrets", "--install", "--login", "--json", stdout=out)
    login = json.loads(out.getvalue())
    settings.VAULT_ROLE_ID, settings.VAULT_SECRET_ID = login["VAULT_ROLE_ID"], login["VAULT_SECRET_ID"]
    assert command("--json")[0] == 0


def test_the_embedded_stack_gives_remora_a_login_that_can_read_no_secret(settings: Any) -> None:
    assert settings.VAULT_ROLE_ID
    secrets, path = config.secret_store(), new_path()
    secrets.write(path, {"value": Secret("x")}, secrets.write_token(60))
    with pytest.raises(VaultForbidden):
        secrets.session.call("get", f"secret/data/remora/{path}", "direct use")
    assert secrets.read(secrets.read_token(path, 60)) == {"value": Secret("x")}
    secrets.destroy(path)
    secrets.forget(path)
