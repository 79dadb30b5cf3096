"""NoOrphanSecrets under every stop: an error, a kill, a lost answer or a late write at each step of either
store.

Each case ends with three passes of the reconciler, after which OpenBao's own listing holds nothing that the
ledger does not own, and no intent is open.
"""

from __future__ import annotations

import os
import signal

import pytest

from credentials import config
from credentials.errors import CredentialError, IntentGone, VaultError
from credentials.models import CredentialEvent, CredentialIntent, CredentialVersion, SecretPath
from credentials.protocol import ACTIONS, IntentState
from credentials.reconciler import Pace
from credentials.secret import Secret
from credentials.service import CredentialService
from tests.credentials.conftest import CANARY, TEST, Vault
from tests.credentials.relay import Relay
from tests.credentials.world import (
    Stopped,
    ended,
    forked,
    in_a_process_of_its_own,
    killing_at,
    raising_at,
    require_settled,
    settle,
)

pytestmark = pytest.mark.django_db(transaction=True)

FORWARD = [
    "PrepareCredentialIntent",
    "write_token",
    "BeginCredentialWrite",
    "CompleteCredentialWrite",
    "RecordCredentialWrite",
    "CommitCredentialVersion",
]
BACK = [
    "fence",
    "FenceFailedCredentialWrite",
    "AbandonFencedCredentialIntent",
    "ClaimCredentialCleanup",
    "destroy",
    "DestroyClaimedCredentialSecret",
]
POINTS = [f"{side} {step}" for step in FORWARD for side in ("before", "after")]
BACK_POINTS = [f"{side} {step}" for step in BACK for side in ("before", "after")]
# Every kind of request that keeping a secret makes, in order: method and part of its path.
REQUESTS = [("POST", "/auth/token/create/"), ("POST", "/data/")]
BACK_REQUESTS = [("GET", "/subkeys/"), ("GET", "/metadata/"), ("POST", "/destroy/")]
SECRETS = {"token": Secret(f"{CANARY}-job")}


def keep_and_commit(service: CredentialService, owner: str = "job:1") -> None:
    service.commit(service.keep_secrets(owner, SECRETS))


def test_an_undisturbed_secret_is_committed_and_journaled(vault: Vault) -> None:
    keep_and_commit(vault.service())
    version = CredentialVersion.objects.get()
    assert vault.live() == {version.path}
    events = list(CredentialEvent.objects.order_by("seq").values_list("action", flat=True))
    assert events == [step for step in FORWARD if step in ACTIONS and step != "CompleteCredentialWrite"]
    settle(vault)
    assert vault.live() == {version.path}


@pytest.mark.parametrize("point", POINTS)
def test_an_error_at_any_step_leaves_no_orphan(vault: Vault, point: str) -> None:
    with pytest.raises(Stopped):
        keep_and_commit(vault.service(raising_at(point)))
    settle(vault)
    assert CredentialVersion.objects.exists() == (point == "after CommitCredentialVersion")


@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_any_step_leaves_no_orphan(vault: Vault, point: str) -> None:
    status = in_a_process_of_its_own(lambda: keep_and_commit(vault.service(killing_at(point))))
    assert status == -signal.SIGKILL
    settle(vault)
    assert CredentialVersion.objects.exists() == (point == "after CommitCredentialVersion")


@pytest.mark.parametrize("point", BACK_POINTS)
@pytest.mark.parametrize("landed", [True, False], ids=["landed", "not landed"])
def test_a_reconciler_killed_at_any_step_leaves_the_rest_to_the_next(
    vault: Vault, relay: Relay, point: str, landed: bool
) -> None:
    status = in_a_process_of_its_own(
        lambda: keep_and_commit(
            vault.service(killing_at(f"{'after' if landed else 'before'} CompleteCredentialWrite"))
        )
    )
    assert status == -signal.SIGKILL

    def reconcile_and_die() -> None:
        reconciler = vault.reconciler()
        object.__setattr__(reconciler.driver, "witness", killing_at(point))
        reconciler.reconcile_credentials()

    on_the_way = {"fence", "ClaimCredentialCleanup", "destroy", "DestroyClaimedCredentialSecret"}
    if not landed:
        on_the_way = {"fence", "FenceFailedCredentialWrite", "AbandonFencedCredentialIntent"}
    passes_it = point.split()[1] in on_the_way
    assert in_a_process_of_its_own(reconcile_and_die) == (-signal.SIGKILL if passes_it else 0)
    settle(vault)
    assert CredentialIntent.objects.get().state == IntentState.ABANDONED


@pytest.mark.parametrize("kind", ["cut", "lose"])
@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request[1])
def test_a_request_or_an_answer_lost_on_the_way_is_made_good_at_once(
    vault: Vault, relay: Relay, request_: tuple[str, str], kind: str
) -> None:
    relay.next(kind, *request_)
    keep_and_commit(vault.through(relay).service())
    assert relay.faults == []
    settle(vault)
    assert len(vault.live()) == 1


@pytest.mark.parametrize("kind", ["cut", "lose"])
@pytest.mark.parametrize("request_", BACK_REQUESTS, ids=lambda request: request[1])
def test_a_reconciler_whose_answers_are_lost_asks_again(
    vault: Vault, relay: Relay, request_: tuple[str, str], kind: str
) -> None:
    with pytest.raises(Stopped):
        keep_and_commit(vault.service(raising_at("after CompleteCredentialWrite")))
    relay.next(kind, *request_)
    stopped = vault.through(relay).reconciler().reconcile_credentials()
    assert "cannot be reached" in stopped.stopped_by
    settle(vault)


def test_a_write_that_lands_after_the_reconciler_gave_up_is_refused(vault: Vault, relay: Relay) -> None:
    """The writer dies with its request still on the way; the intent is Abandoned; then it arrives."""
    slow = vault.through(relay, answer_ms=60_000)
    held = relay.next("hold", "POST", "/data/")
    writer = forked(lambda: keep_and_commit(slow.service()))
    assert held.done.wait(20)
    os.kill(writer, signal.SIGKILL)
    assert ended(writer) == -signal.SIGKILL
    assert CredentialIntent.objects.get().state == IntentState.WRITING
    settle(vault)
    assert CredentialIntent.objects.get().state == IntentState.ABANDONED
    assert b" 200 " not in held.held[0].send().split(b"\r\n")[0]
    require_settled(vault)


@pytest.mark.parametrize("forgotten", [False, True], ids=["metadata kept", "metadata removed"])
def test_a_late_write_after_a_retry_finds_its_path_closed(
    vault: Vault, relay: Relay, forgotten: bool
) -> None:
    """The writer itself gives the first try up and succeeds with the second; then the first arrives."""
    held = relay.next("hold", "POST", "/data/")
    keep_and_commit(vault.through(relay, answer_ms=400).service())
    assert CredentialIntent.objects.get().tries == 2
    if forgotten:
        settle(vault)
        assert SecretPath.objects.filter(forgotten_at__isnull=False).count() == 1
    answer = held.held[0].send().split(b"\r\n")[0]
    assert (b" 403 " if forgotten else b" 400 ") in answer
    settle(vault)
    assert len(vault.live()) == 1


def test_a_late_write_that_lands_before_the_fence_is_claimed_and_destroyed(
    vault: Vault, relay: Relay
) -> None:
    held = relay.next("hold", "POST", "/data/")
    relay.next("cut", "POST", "/auth/token/create/")  # the fence finds no Vault: the intent stays Writing
    relay.faults.reverse()
    relay.faults[0].fits = lambda raw: b"/auth/token/create/" in raw and held.done.is_set()
    with pytest.raises(VaultError):
        keep_and_commit(vault.through(relay, answer_ms=400).service())
    relay.faults.clear()
    intent = CredentialIntent.objects.get()
    assert held.held[0].send().startswith(b"HTTP/1.1 200") == (intent.state == IntentState.WRITING)
    settle(vault)
    assert CredentialIntent.objects.get().state == IntentState.ABANDONED


def test_a_writer_that_was_overtaken_lets_go(vault: Vault) -> None:
    """The reconciler clears the intent while its writer is stopped between the write and the record."""

    def witness(at: str) -> None:
        if at == "after CompleteCredentialWrite":
            settle(vault)

    with pytest.raises(IntentGone):
        keep_and_commit(vault.service(witness))
    require_settled(vault)
    assert vault.live() == set()


def test_what_was_cleared_cannot_be_committed(vault: Vault) -> None:
    service = vault.service()
    kept = service.keep_secrets("job:1", SECRETS)
    settle(vault)
    with pytest.raises(IntentGone):
        service.commit(kept)
    require_settled(vault)


def test_committing_twice_is_one_commit(vault: Vault) -> None:
    """The answer to the first COMMIT was lost, so the caller asks again."""
    service = vault.service()
    kept = service.keep_secrets("job:1", SECRETS)
    service.commit(kept)
    service.commit(kept)
    assert CredentialVersion.objects.count() == 1


def test_one_failing_secret_of_several_takes_the_others_with_it(vault: Vault, relay: Relay) -> None:
    lossy = vault.through(relay)

    def witness(at: str) -> None:
        if at == "before write_token" and CredentialIntent.objects.filter(state=IntentState.WRITTEN).exists():
            for _ in range(3):
                relay.next("cut", "POST", "/auth/token/create/")

    with pytest.raises(CredentialError):
        lossy.service(witness).keep_secrets("job:1", {"a": Secret("x"), "b": Secret("y")})
    settle(vault)
    assert vault.live() == set()
    assert set(CredentialIntent.objects.values_list("state", flat=True)) == {IntentState.ABANDONED}


def test_paths_are_forgotten_only_after_the_quiet_time(vault: Vault) -> None:
    service = vault.service()
    service.discard(service.keep_secrets("job:1", SECRETS))
    patient = vault.reconciler(Pace(quiet_s=0, forget_s=600, read_token_s=30, rows_max=500))
    patient.reconcile_credentials()
    assert len(vault.audit.paths()) == 1
    assert vault.live() == set()
    assert SecretPath.objects.get().writer_dead_at is not None
    settle(vault)
    assert vault.audit.paths() == []


def test_the_settings_lead_to_a_working_service(vault: Vault, settings: object) -> None:
    for name, value in {
        "VAULT_ROLE_ID": vault.config.role_id,
        "VAULT_SECRET_ID": vault.config.secret_id.reveal() if vault.config.secret_id else "",
        "REMORA_VAULT_APPROLE_MOUNT": vault.config.approle_mount,
        "REMORA_VAULT_MOUNT": vault.plan.mount,
        "REMORA_VAULT_PREFIX": vault.plan.name,
        "REMORA_CREDENTIAL_QUIET_S": 0,
    }.items():
        setattr(settings, name, value)
    service = config.credential_service(TEST)
    keep_and_commit(service)
    assert config.reconciler("test").reconcile_credentials().stopped_by == ""
    assert CredentialVersion.objects.get().path in config.secret_store().paths()
