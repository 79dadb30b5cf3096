"""What the database refuses, whoever writes: each rule is broken by hand here, and each error names its
invariant.
"""

# ruff: noqa: S608 (the statements are put together from this file's own words)

from __future__ import annotations

from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from credentials import transitions, versions
from credentials.models import CredentialIntent, CredentialVersion
from credentials.protocol import ACTIONS, IntentRecord, IntentState, VaultState
from credentials.transitions import Begin, Prepare, Step
from tests.credentials.conftest import TEST

pytestmark = pytest.mark.django_db(transaction=True)

PATH = "a" * 32
INTENT = "credentials_credentialintent"
ENDS = ["CredentialIntentCommitted", "CredentialIntentAbandoned"]


def intent_in(state: IntentState) -> CredentialIntent:
    """An intent that came to this state by the actions alone."""
    made = CredentialIntent(owner="job:1", name="token")
    step = Step(made.pk, PATH, VaultState.LIVE)
    transitions.prepare_credential_intent([Prepare(made.pk, "job:1", "token", ("value",))], TEST)
    absent = Step(made.pk, "", VaultState.ABSENT)
    if state is IntentState.ABANDONED:
        transitions.abandon_fenced_credential_intent([absent], TEST)
    elif state is not IntentState.PREPARED:
        transitions.begin_credential_write([Begin(made.pk, PATH, "accessor")], TEST)
        if state is not IntentState.WRITING:
            transitions.record_credential_write([step], TEST)
        if state is IntentState.COMMITTED:
            transitions.commit_credential_version([step], TEST)
        if state is IntentState.ABANDONING:
            transitions.claim_credential_cleanup([step], TEST)
    found = CredentialIntent.objects.get(pk=made.pk)
    assert found.state == state
    return found


def sql(statement: str, *values: Any) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement, values)


STATES = [state for state in IntentState if state is not IntentState.UNUSED]
# These need nothing beside the row itself: their paths and versions are as they must be.
BARE_STEPS = {
    (IntentState.WRITING, IntentState.WRITTEN),
    (IntentState.WRITING, IntentState.ABANDONING),
    (IntentState.WRITTEN, IntentState.ABANDONING),
    (IntentState.PREPARED, IntentState.ABANDONED),
}


@pytest.mark.parametrize("before", STATES)
def test_no_step_but_the_actions_is_possible(before: IntentState) -> None:
    """And of the actions' own steps, none without what belongs to it: a path, its closing, a version."""
    intent = intent_in(before)
    for after in set(STATES) - {before}:
        refused = ""
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute(
                    f"UPDATE {INTENT} SET state = %s, version_durable = %s WHERE id = %s",
                    [after, after is IntentState.COMMITTED, intent.pk],
                )
                cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
                transaction.set_rollback(True)
        except IntegrityError as error:
            refused = str(error)
        assert bool(refused) == ((before, after) not in BARE_STEPS), (before, after)
        assert not refused or any(
            word in refused for word in ("NoOrphan", "ellFormed", "well_f", "Immutable")
        )
    assert CredentialIntent.objects.get(pk=intent.pk).state == before


@pytest.mark.parametrize(
    ("state", "statement", "name"),
    [
        (IntentState.WRITTEN, f"DELETE FROM {INTENT}", "NoOrphanSecrets"),
        (IntentState.ABANDONING, f"DELETE FROM {INTENT}", "NoOrphanSecrets"),
        (IntentState.COMMITTED, f"DELETE FROM {INTENT}", "NoOrphanSecrets"),
        (IntentState.WRITING, "DELETE FROM credentials_secretpath", "NoOrphanSecrets"),
        (IntentState.COMMITTED, "DELETE FROM credentials_credentialversion", "NoOrphanSecrets"),
        (IntentState.COMMITTED, f"UPDATE {INTENT} SET why = 'x'", "FinalStatesAreImmutable"),
        (IntentState.ABANDONED, f"UPDATE {INTENT} SET touched_at = now()", "FinalStatesAreImmutable"),
        (IntentState.WRITING, f"UPDATE {INTENT} SET owner = 'job:2'", "CredentialLifecycleWellFormed"),
        (IntentState.WRITING, f"UPDATE {INTENT} SET path = 'b'", "CredentialLifecycleWellFormed"),
        (IntentState.WRITTEN, f"UPDATE {INTENT} SET path = ''", "CredentialLifecycleWellFormed"),
        (IntentState.WRITTEN, f"UPDATE {INTENT} SET version_durable = true", "well_formed__version"),
        (
            IntentState.WRITTEN,
            f"UPDATE {INTENT} SET state = '{ENDS[0]}', version_durable = true",
            "CredentialLifecycleWellFormed",
        ),
        (IntentState.COMMITTED, "UPDATE credentials_secretpath SET closed_at = now()", "NoOrphanSecrets"),
        (IntentState.WRITING, "UPDATE credentials_secretpath SET writer_accessor = 'x'", "NoOrphanSecrets"),
        (
            IntentState.WRITING,
            "UPDATE credentials_secretpath SET forgotten_at = now()",
            "a_path_is_forgotten_after",
        ),
        (
            IntentState.COMMITTED,
            "UPDATE credentials_credentialversion SET state = 'Destroying'",
            "a_superseded_version_alone",
        ),
        (
            IntentState.COMMITTED,
            "UPDATE credentials_credentialversion SET superseded_at = now(), state = 'Destroyed',"
            " destroyed_at = now()",
            "VersionIsImmutable",
        ),
        (IntentState.COMMITTED, "UPDATE credentials_credentialversion SET number = 2", "VersionIsImmutable"),
        (IntentState.COMMITTED, "UPDATE credentials_credentialversion SET path = 'b'", "VersionIsImmutable"),
        (IntentState.WRITTEN, "UPDATE credentials_credentialevent SET action = 'x'", "JournalIsAppendOnly"),
    ],
)
def test_what_would_break_an_invariant_is_refused(state: IntentState, statement: str, name: str) -> None:
    intent_in(state)
    with pytest.raises(IntegrityError, match=name):
        sql(statement)


def test_a_version_of_nothing_committed_is_refused() -> None:
    intent = intent_in(IntentState.WRITTEN)
    with pytest.raises(IntegrityError, match="CredentialLifecycleWellFormed"):
        CredentialVersion.objects.create(
            intent=intent, owner=intent.owner, name=intent.name, number=1, path=intent.path
        )


def test_a_pinned_version_is_not_destroyed_and_a_destroyed_one_not_pinned() -> None:
    intent_in(IntentState.COMMITTED)
    version = CredentialVersion.objects.get()
    pin = "INSERT INTO credentials_versionpin (version_id, holder, created_at) VALUES (%s, 'job:9', now())"
    destroy = "UPDATE credentials_credentialversion SET superseded_at = now(), state = 'Destroying'"
    sql(pin, version.pk)
    with pytest.raises(IntegrityError, match="PinnedVersionIsKept"):
        sql(destroy)
    versions.unpin(["job:9"])
    sql(destroy)
    with pytest.raises(IntegrityError, match="PinnedVersionIsKept"):
        sql(pin, version.pk)


def test_the_ledger_is_not_truncated() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET remora.allow_truncate = 'off'")
        try:
            for table in (INTENT, "credentials_credentialevent"):
                with pytest.raises(IntegrityError, match="NoOrphanSecrets"):
                    sql(f"TRUNCATE {table} CASCADE")
        finally:
            cursor.execute("SET remora.allow_truncate = 'on'")


@pytest.mark.parametrize("state", STATES)
def test_every_action_on_every_state_is_decided_as_the_protocol_does(state: IntentState) -> None:
    """The durable functions against the pure ones: accepted, refused, and nothing changed by a refusal."""
    intent = intent_in(state)
    path = intent.path
    calls = {
        "RecordCredentialWrite": (transitions.record_credential_write, VaultState.LIVE, IntentState.WRITTEN),
        "ClaimCredentialCleanup": (
            transitions.claim_credential_cleanup,
            VaultState.LIVE,
            IntentState.ABANDONING,
        ),
        "CommitCredentialVersion": (
            transitions.commit_credential_version,
            VaultState.LIVE,
            IntentState.COMMITTED,
        ),
        "AbandonFencedCredentialIntent": (
            transitions.abandon_fenced_credential_intent,
            VaultState.ABSENT,
            IntentState.ABANDONED,
        ),
    }
    for name, (durable, found, target) in calls.items():
        now = CredentialIntent.objects.get(pk=intent.pk)
        pure = ACTIONS[name].function(IntentRecord(IntentState(now.state), found, now.version_durable))
        answer = durable([Step(intent.pk, path, found)], TEST)[0]
        assert answer.accepted == (pure.accepted or now.state == target), name
        after = CredentialIntent.objects.get(pk=intent.pk)
        assert after.state == (target if pure.accepted else now.state)


def test_a_step_of_another_try_is_refused() -> None:
    intent = intent_in(IntentState.WRITING)
    answer = transitions.record_credential_write([Step(intent.pk, "b" * 32, VaultState.LIVE)], TEST)[0]
    assert answer.refused
    assert CredentialIntent.objects.get(pk=intent.pk).state == IntentState.WRITING
