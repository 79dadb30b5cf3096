"""The journal, replayed; and the end of rows that nobody needs any more."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from credentials.audit import audit_intents
from credentials.models import CredentialEvent, CredentialIntent, CredentialVersion, SecretPath
from credentials.protocol import IntentState
from credentials.retention import prune_intents
from credentials.secret import Secret
from tests.credentials.conftest import TEST, Vault
from tests.credentials.relay import Relay
from tests.credentials.world import Stopped, raising_at, settle

pytestmark = pytest.mark.django_db(transaction=True)


def live_a_little(vault: Vault, relay: Relay) -> None:
    service = vault.service()
    service.commit(service.keep_secrets("job:1", {"token": Secret("x")}))
    relay.next("cut", "POST", "/data/")
    vault.through(relay).service().keep_secrets("job:2", {"token": Secret("x")})
    for point in ("after CompleteCredentialWrite", "after BeginCredentialWrite"):
        with pytest.raises(Stopped):
            vault.service(raising_at(point)).keep_secrets("job:3", {"token": Secret("x")})
    settle(vault)


def test_what_happened_replays(vault: Vault, relay: Relay) -> None:
    live_a_little(vault, relay)
    assert list(audit_intents()) == []
    assert set(CredentialEvent.objects.values_list("actor_kind", flat=True)) == {TEST.kind}
    assert CredentialIntent.objects.count() == 4


def test_a_step_that_was_not_allowed_is_found(vault: Vault, relay: Relay) -> None:
    live_a_little(vault, relay)
    first = CredentialEvent.objects.filter(action="RecordCredentialWrite").order_by("seq")[0]
    CredentialEvent.objects.filter(pk=first.pk).delete()
    found = list(audit_intents())
    assert [(step.intent_id, step.action) for step in found] == [(first.intent_id, "CommitCredentialVersion")]
    assert "NOT_WRITTEN" in found[0].problem
    assert list(audit_intents("job:3")) == []


def test_a_row_that_the_journal_does_not_explain_is_found(vault: Vault) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO credentials_credentialintent (id, owner, name, field_names)"
            " VALUES (gen_random_uuid(), 'job:1', 'by hand', '{}')"
        )
    assert "the journal ends at" in next(audit_intents()).problem


def test_only_what_is_over_for_good_is_pruned(vault: Vault, relay: Relay) -> None:
    live_a_little(vault, relay)
    service = vault.service()
    service.commit(service.keep_secrets("job:4", {"token": Secret("x")}))
    service.release_owner("job:1")
    open_one = service.keep_secrets("job:5", {"token": Secret("x")})[0]
    vault.reconciler().destroy_versions()
    soon = timezone.now() + timedelta(minutes=1)
    assert prune_intents(timezone.now() - timedelta(days=1), 100) == 0
    before = CredentialIntent.objects.count()
    assert prune_intents(soon, 1) == 1, "bounded"
    prune_intents(soon, 100)
    left = set(CredentialIntent.objects.values_list("owner", "state"))
    assert before > len(left)
    assert left == {
        ("job:1", IntentState.COMMITTED),  # destroyed, but its path is not yet forgotten
        ("job:4", IntentState.COMMITTED),
        ("job:5", IntentState.WRITTEN),
    }
    service.discard([open_one])
    settle(vault)
    prune_intents(soon, 100)
    assert set(CredentialIntent.objects.values_list("owner", flat=True)) == {"job:4"}
    assert SecretPath.objects.count() == CredentialVersion.objects.count() == 1
    assert vault.live() == {CredentialVersion.objects.get().path}
