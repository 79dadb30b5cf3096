"""The operators' pages: material goes in, and never comes back out."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from credentials.models import Connection, CredentialVersion
from credentials.secret import Secret
from tests.credentials.conftest import CANARY, Vault
from tests.credentials.world import settle

pytestmark = pytest.mark.django_db(transaction=True)

ADD = "admin:credentials_connection_add"


@pytest.fixture
def pages(vault: Vault, settings: Any) -> Client:
    """A superuser's browser, on this test's own prefix."""
    assert vault.config.secret_id is not None
    settings.VAULT_ROLE_ID = vault.config.role_id
    settings.VAULT_SECRET_ID = vault.config.secret_id.reveal()
    settings.REMORA_VAULT_APPROLE_MOUNT = vault.config.approle_mount
    settings.REMORA_VAULT_MOUNT = vault.plan.mount
    settings.REMORA_VAULT_PREFIX = vault.plan.name
    client = Client()
    client.force_login(User.objects.create_superuser("root", password=None))
    return client


def login(word: str) -> dict[str, str]:
    return {"material_username": "u", "material_password": f"{CANARY}-{word}"}


def create(pages: Client, **more: str) -> Any:
    given = {"name": "source", "kind": "http", "settings": '{"url": "https://h/"}', **login("first"), **more}
    return pages.post(reverse(ADD), given)


def stored(vault: Vault) -> list[dict[str, Secret]]:
    secrets = vault.admin
    paths = (
        CredentialVersion.objects.exclude(state="Destroyed").order_by("number").values_list("path", flat=True)
    )
    url = f"{vault.plan.mount}/data/{vault.plan.name}"
    return [secrets.call("get", f"{url}/{path}", "look").data["data"]["fields"] for path in paths]


def test_a_connection_is_made_rotated_and_retired(vault: Vault, pages: Client) -> None:
    assert create(pages).status_code == 302
    found = Connection.objects.get()
    assert stored(vault) == [{"username": "u", "password": f"{CANARY}-first"}]
    rotate = reverse("admin:connection_rotate", args=[found.pk])
    assert pages.post(rotate, {"expected_number": 1, **login("second")}).status_code == 302
    assert stored(vault)[-1]["password"] == f"{CANARY}-second"
    assert pages.post(reverse("admin:connection_retire", args=[found.pk])).status_code == 302
    found.refresh_from_db()
    assert found.retired_at
    messages = list(LogEntry.objects.order_by("pk").values_list("change_message", flat=True))
    assert messages == ["Created with its first version.", "Rotated to version 2.", "Retired."]
    assert LogEntry.objects.count() == 3


def test_no_page_shows_material_also_not_the_one_it_was_typed_into(vault: Vault, pages: Client) -> None:
    create(pages)
    found, version = Connection.objects.get(), CredentialVersion.objects.get()
    rotate = reverse("admin:connection_rotate", args=[found.pk])
    wrong = {"material_token": f"{CANARY}-t", "material_private_key": f"{CANARY}-k", "material_other": CANARY}
    answers = [
        create(pages),  # the name is taken
        create(pages, name="no good name"),
        create(pages, name="other", **wrong),
        create(pages, name="other", settings=f'{{"url": "https://u:{CANARY}@h/"}}'),
        pages.post(rotate, {"expected_number": 7, **login("x")}),
        pages.post(rotate, {"expected_number": 1, "material_token": f"{CANARY}-t", **login("x")}),
        pages.get(rotate),
        pages.get(reverse("admin:connection_retire", args=[found.pk])),
    ]
    names = ["connection", "credentialintent", "credentialversion", "credentialevent"]
    answers += [pages.get(reverse(f"admin:credentials_{name}_changelist")) for name in names]
    answers += [
        pages.get(reverse("admin:credentials_connection_change", args=[found.pk])),
        pages.get(reverse("admin:credentials_credentialversion_change", args=[version.pk])),
        pages.get(reverse("admin:credentials_credentialintent_change", args=[version.intent_id])),
    ]
    assert [answer.status_code for answer in answers] == [200] * len(answers)
    shown = "".join(answer.content.decode() for answer in answers[:3] + answers[4:])
    assert CANARY not in shown
    # What was typed as a setting is shown to who typed it, as every form does; it was not accepted.
    assert "looks like a credential" in answers[3].content.decode()
    assert "material_token" in answers[0].content.decode()
    assert "Rotate" in answers[-3].content.decode()


def test_two_people_do_not_overwrite_each_other(vault: Vault, pages: Client) -> None:
    create(pages)
    rotate = reverse("admin:connection_rotate", args=[Connection.objects.get().pk])
    assert pages.post(rotate, {"expected_number": 1, **login("second")}).status_code == 302
    answer = pages.post(rotate, {"expected_number": 1, **login("third")})
    assert answer.status_code == 200
    assert "Version 2 of source is current" in answer.content.decode()
    assert stored(vault)[-1]["password"] == f"{CANARY}-second"


def test_other_fields_and_keys_of_many_lines_are_kept_as_typed(vault: Vault, pages: Client) -> None:
    key = "-----BEGIN X-----\r\nabc\r\n-----END X-----"
    given = {"name": "box", "kind": "sftp", "material_username": "u", "material_private_key": key}
    assert pages.post(reverse(ADD), given).status_code == 302
    given = {"name": "any", "kind": "generic", "material_other": "a=1=2\r\nb= x "}
    assert pages.post(reverse(ADD), given).status_code == 302
    kept = {tuple(sorted(fields)): fields for fields in stored(vault)}
    assert kept["private_key", "username"]["private_key"] == key.replace("\r\n", "\n")
    assert kept["a", "b"] == {"a": "1=2", "b": " x "}


def test_while_vault_is_away_the_page_says_so(vault: Vault, pages: Client, settings: Any) -> None:
    settings.VAULT_ADDR = "http://127.0.0.1:1"
    answer = create(pages)
    assert answer.status_code == 200
    assert "cannot be reached" in answer.content.decode()
    assert CANARY not in answer.content.decode()
    settle(vault)


def test_only_who_may_does(vault: Vault, pages: Client) -> None:
    create(pages)
    pk = Connection.objects.get().pk
    looker = User.objects.create_user("looker", is_staff=True)
    looker.user_permissions.add(*Permission.objects.filter(codename__startswith="view_"))
    client = Client()
    client.force_login(looker)
    assert client.get(reverse("admin:credentials_connection_changelist")).status_code == 200
    page = client.get(reverse("admin:credentials_connection_change", args=[pk]))
    assert page.status_code == 200
    assert "/rotate/" not in page.content.decode()
    for name, arguments in (
        ("credentials_connection_add", []),
        ("connection_rotate", [pk]),
        ("connection_retire", [pk]),
    ):
        assert client.post(reverse(f"admin:{name}", args=arguments), login("x")).status_code == 403
        assert Client().post(reverse(f"admin:{name}", args=arguments), login("x")).status_code == 302
    assert CredentialVersion.objects.count() == 1
    assert client.post(reverse("admin:credentials_connection_delete", args=[pk])).status_code == 403
