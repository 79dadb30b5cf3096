"""What is taken as material, and secrets that come with a submission: accepted with it, gone with it."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, transaction

from credentials.errors import CredentialConflict, CredentialError, MaterialInvalid
from credentials.models import CredentialIntent, CredentialVersion
from credentials.protocol import IntentState
from credentials.secret import Secret
from tests.credentials.conftest import CANARY, Vault
from tests.credentials.world import Stopped, settle

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("s3", {"access_key_id": "a"}),
        ("http", {"token": "t", "username": "u", "password": "p"}),
        ("http", {}),
        ("sftp", {"username": "u"}),
        ("generic", {}),
        ("generic", {"a": ""}),
        ("generic", {"a b": "x"}),
        ("generic", {"a": "\udc80"}),
        ("generic", {"a": "x" * 70_000}),
        ("ftp", {"a": "x"}),
    ],
)
def test_material_that_does_not_fit_is_refused_and_not_quoted(
    vault: Vault, kind: str, fields: dict[str, str]
) -> None:
    material = {name: Secret(value) for name, value in fields.items()}
    with pytest.raises(MaterialInvalid) as raised:
        vault.service().create_connection("source", kind, {}, material)
    assert "x" * 100 not in str(raised.value)
    assert not CredentialIntent.objects.exists()
    assert raised.value.__context__ is None


@pytest.mark.parametrize(
    "settings",
    [
        {"url": f"https://u:{CANARY}@h/"},
        {"password": CANARY},
        {"url": f"https://h/?sig={CANARY}"},
        {"a": "\x00"},
    ],
)
def test_settings_that_look_like_a_secret_are_refused(vault: Vault, settings: dict[str, str]) -> None:
    with pytest.raises(MaterialInvalid) as raised:
        vault.service().create_connection("source", "http", settings, {"token": Secret("x")})
    assert CANARY not in str(raised.value)


def test_a_job_has_a_secret_of_one_name_once(vault: Vault) -> None:
    service = vault.service()
    one, two = (service.keep_secrets("job:1", {"token": Secret(word)}) for word in "ab")
    service.commit(one)
    with pytest.raises(CredentialConflict):
        service.commit(two)
    service.discard(two)
    settle(vault)
    assert vault.live() == {one[0].path}


def test_a_submission_that_is_rolled_back_leaves_no_secret(vault: Vault) -> None:
    service = vault.service()
    kept = service.keep_secrets("job:1", {"token": Secret("x")})

    def submit() -> None:
        with transaction.atomic():
            service.commit(kept)
            raise Stopped

    with pytest.raises(Stopped):
        submit()
    settle(vault)
    assert vault.live() == set()


def test_what_an_owner_had_goes_with_it(vault: Vault) -> None:
    service = vault.service()
    for owner in ("job:1", "job:2"):
        service.commit(service.keep_secrets(owner, {"a": Secret("x"), "b": Secret("y")}))
    assert service.release_owner("job:1") == 2
    settle(vault)
    assert vault.live() == set(CredentialVersion.objects.filter(owner="job:2").values_list("path", flat=True))


def test_writing_inside_a_transaction_is_refused(vault: Vault) -> None:
    """Vault would keep what the transaction may take back."""
    with pytest.raises(CredentialError), transaction.atomic():
        vault.service().keep_secrets("job:1", {"a": Secret("x")})
    assert vault.audit.paths() == []
    with pytest.raises(IntegrityError), transaction.atomic():
        CredentialIntent.objects.create(owner="o", name="n", state=IntentState.COMMITTED)
