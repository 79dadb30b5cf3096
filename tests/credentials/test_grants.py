"""Read tokens: exactly the paths of one owner, only while their holder is believed."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace

import pytest
from django.db import connection

from credentials import versions
from credentials.errors import ReadTokenExpired, SecretMissing, VaultError, VaultForbidden
from credentials.grants import ReadTokens, holders_with_tokens
from credentials.models import CredentialVersion, ReadGrant
from credentials.secret import Secret
from tests.credentials.conftest import CANARY, Vault
from tests.credentials.relay import Relay
from tests.credentials.world import ended, forked, in_a_process_of_its_own, settle
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def jobs(vault: Vault) -> Vault:
    """Two jobs with a secret each, and a connection that the first has pinned."""
    service = vault.service()
    for owner in ("job:1", "job:2"):
        service.commit(service.keep_secrets(owner, {"token": Secret(f"{CANARY}-{owner}")}))
    service.create_connection("source", "http", {}, {"token": Secret(f"{CANARY}-source")})
    versions.pin_versions("job:1", ["source"])
    return vault


def test_an_attempt_reads_its_jobs_secrets_and_pinned_connections(jobs: Vault) -> None:
    grants = jobs.grants()
    tokens = grants.issue_read_token("job:1", "attempt:1", 60)
    assert grants.read_secret(tokens, "token") == Secret(f"{CANARY}-job:1")
    assert grants.read_connection(tokens, "source") == {"token": Secret(f"{CANARY}-source")}
    for name in ("source", "other"):
        with pytest.raises(SecretMissing, match=name):
            grants.read_secret(tokens, name)
    assert holders_with_tokens(10) == ["attempt:1"]


def test_it_reads_no_other_jobs_secrets(jobs: Vault) -> None:
    tokens = jobs.grants().issue_read_token("job:1", "attempt:1", 60)
    foreign = CredentialVersion.objects.get(owner="job:2").path
    for token in tokens.all():
        with pytest.raises(VaultForbidden):
            jobs.secrets.read(replace(token, path=foreign))


def test_a_rotation_does_not_disturb_who_reads(jobs: Vault) -> None:
    grants = jobs.grants()
    tokens = grants.issue_read_token("job:1", "attempt:1", 60)
    jobs.service().rotate_connection("source", {"token": Secret("new")})
    settle(jobs)
    assert grants.read_connection(tokens, "source") == {"token": Secret(f"{CANARY}-source")}


def test_a_reaped_attempt_cannot_read_whoever_reaps_it(jobs: Vault) -> None:
    tokens = jobs.grants().issue_read_token("job:1", "attempt:1", 60)

    def reap() -> None:
        assert jobs.grants().revoke(["attempt:1"]) == 2

    assert in_a_process_of_its_own(reap) == 0
    for read in (jobs.grants().read_secret, jobs.grants().read_connection):
        with pytest.raises(ReadTokenExpired):
            read(tokens, "token" if read.__name__ == "read_secret" else "source")
    with pytest.raises(ReadTokenExpired):
        jobs.grants().renew(tokens, 60)
    assert not ReadGrant.objects.exists()
    assert jobs.grants().revoke(["attempt:1"]) == 0


def test_tokens_that_nobody_renews_lapse_and_are_dropped(jobs: Vault) -> None:
    grants = jobs.grants()
    tokens = grants.issue_read_token("job:1", "attempt:1", 1)
    kept = grants.issue_read_token("job:2", "attempt:2", 60)

    def lapsed() -> bool:
        try:
            grants.read_secret(tokens, "token")
        except ReadTokenExpired:
            return True
        return False

    wait_until(lapsed, 10, "the token lapsed")
    wait_until(
        lambda: grants.sweep(0, 10) + 1 and not ReadGrant.objects.filter(holder="attempt:1"), 10, "dropped"
    )
    assert holders_with_tokens(10) == ["attempt:2"]
    grants.read_secret(kept, "token")


def test_renewed_tokens_live_on(jobs: Vault) -> None:
    grants = jobs.grants()
    tokens = grants.issue_read_token("job:1", "attempt:1", 2)
    grants.renew(tokens, 120)
    for token in tokens.all():
        known = jobs.admin.call(
            "post", "auth/token/lookup-accessor", "look", {"accessor": token.accessor}
        ).data
        assert known["ttl"] > 60
        assert known["policies"] == [f"{jobs.plan.name}-read"]


def test_tokens_outlive_the_login_that_had_them_made(jobs: Vault) -> None:
    grants = jobs.grants()
    tokens = grants.issue_read_token("job:1", "attempt:1", 60)
    login = grants.secrets.session._usable_login().token
    jobs.admin.call("post", "auth/token/revoke", "revocation", {"token": login})
    assert grants.read_secret(tokens, "token") == Secret(f"{CANARY}-job:1")


def test_a_grant_revoked_while_it_was_made_is_not_handed_over(jobs: Vault, relay: Relay) -> None:
    """The reaper comes while the answer of Vault is on its way to an attempt that was paused."""
    issuer = jobs.through(relay).grants()
    issuer.secrets.paths()
    original = issuer.secrets.session.call

    def call_then_reaped(*given: object, **named: object) -> object:
        answer = original(*given, **named)  # type: ignore[arg-type]
        if "read token" in str(given[2]):
            jobs.grants().revoke(["attempt:1"])
        return answer

    issuer.secrets.session.call = call_then_reaped  # type: ignore[method-assign,assignment]
    with pytest.raises(ReadTokenExpired, match="revoked before it was handed over"):
        issuer.issue_read_token("job:1", "attempt:1", 60)
    assert not ReadGrant.objects.exists()


@pytest.mark.parametrize("kind", ["cut", "lose"])
def test_a_failure_half_way_revokes_what_was_issued(jobs: Vault, relay: Relay, kind: str) -> None:
    issuer = jobs.through(relay).grants()
    fault = relay.next(kind, "POST", "-read")
    seen = iter([False, True])
    fits = fault.fits
    fault.fits = lambda raw: fits(raw) and next(seen, False)
    with pytest.raises(VaultError):
        issuer.issue_read_token("job:1", "attempt:1", 60)
    assert not ReadGrant.objects.exists()


def test_an_attempt_killed_before_it_has_its_tokens_leaves_none_in_the_ledger(
    jobs: Vault, relay: Relay
) -> None:
    held = relay.next("hold", "POST", "-read")
    pid = forked(lambda: jobs.through(relay).grants().issue_read_token("job:1", "attempt:1", 60))
    assert held.done.wait(20)
    os.kill(pid, signal.SIGKILL)
    ended(pid)
    assert ReadGrant.objects.count() == 2
    jobs.grants().revoke(["attempt:1"])
    assert not ReadGrant.objects.exists()


def test_a_holder_that_owns_nothing_gets_nothing(jobs: Vault) -> None:
    tokens = jobs.grants().issue_read_token("job:9", "attempt:9", 60)
    assert tokens.all() == []


def test_tokens_travel_over_a_pipe_and_do_not_show(jobs: Vault) -> None:
    tokens = jobs.grants().issue_read_token("job:1", "attempt:1", 60)
    assert all(token.token.reveal() not in repr(tokens) for token in tokens.all())
    again = ReadTokens.from_wire(json.loads(json.dumps(tokens.to_wire())))
    assert again == tokens
    with connection.cursor() as cursor:
        cursor.execute("SELECT string_agg(g::text, ' ') FROM credentials_readgrant g")
        (dump,) = cursor.fetchone()
    assert all(token.token.reveal() not in dump for token in tokens.all())
