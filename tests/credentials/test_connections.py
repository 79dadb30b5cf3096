"""Connections: one current version, whatever happens at once; nobody loses a version that they rely on."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from django.db import connection, transaction

from credentials import versions
from credentials.errors import ConnectionUnknown, CredentialConflict, CredentialError
from credentials.models import Connection, CredentialIntent, CredentialVersion, VersionPin, VersionState
from credentials.protocol import IntentState
from credentials.reconciler import Pace
from credentials.secret import Secret
from tests.credentials.conftest import CANARY, Vault
from tests.credentials.world import (
    Stopped,
    ended,
    forked,
    in_a_process_of_its_own,
    killing_at,
    raising_at,
    settle,
)

# Leaves intents to their writers, and takes on retired versions at once.
PATIENT = Pace(quiet_s=60, forget_s=0, read_token_s=30, rows_max=500)

pytestmark = pytest.mark.django_db(transaction=True)


def login(word: str) -> dict[str, Secret]:
    """User and password that belong together: a mixture of two would show."""
    return {"username": Secret(f"user-{word}"), "password": Secret(f"{CANARY}-{word}")}


def create(vault: Vault, name: str = "source", word: str = "first") -> CredentialVersion:
    return vault.service().create_connection(name, "http", {"url": "https://h/"}, login(word))


def read_current(vault: Vault, name: str = "source") -> dict[str, Secret]:
    found = Connection.objects.get(name=name)
    version = CredentialVersion.objects.get(owner=versions.owner_of(found.pk), number=found.current_number)
    return vault.secrets.read(vault.secrets.read_token(version.path, 30))


def in_threads(works: Sequence[Callable[[], Any]]) -> list[Any]:
    """All at once, each with a database session of its own; their results, or the errors they ended with."""
    barrier = threading.Barrier(len(works))
    results: list[Any] = [None] * len(works)

    def run(index: int, work: Callable[[], Any]) -> None:
        try:
            barrier.wait()
            results[index] = work()
        except CredentialError as error:
            results[index] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=item) for item in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_a_rotation_replaces_the_current_version_and_the_old_one_goes(vault: Vault) -> None:
    first = create(vault)
    second = vault.service().rotate_connection("source", login("second"))
    assert (first.number, second.number) == (1, 2)
    assert read_current(vault) == login("second")
    settle(vault)
    assert vault.live() == {second.path}
    first.refresh_from_db()
    assert first.state == VersionState.DESTROYED


def test_eight_rotations_at_once_leave_one_current_version_and_no_orphan(vault: Vault) -> None:
    create(vault)
    words = [f"w{number}" for number in range(8)]
    works = [
        partial(vault.service().rotate_connection, "source", login(word), expected_number=1) for word in words
    ]
    results = in_threads(works)
    won = [index for index, result in enumerate(results) if isinstance(result, CredentialVersion)]
    assert len(won) == 1
    assert sum(isinstance(result, CredentialConflict) for result in results) == 7
    assert read_current(vault) == login(words[won[0]])
    losers = CredentialIntent.objects.exclude(state=IntentState.COMMITTED)
    assert set(losers.values_list("state", flat=True)) <= {IntentState.ABANDONED}
    settle(vault)
    assert len(vault.live()) == 1


def test_twenty_rotations_from_four_processes(vault: Vault) -> None:
    """Numbers rise without a gap, and user and password are of one and the same rotation."""
    create(vault)

    def rotate(process: int) -> None:
        for turn in range(5):
            try:
                vault.service().rotate_connection("source", login(f"p{process}t{turn}"))
            except CredentialConflict:
                continue

    pids = [forked(partial(rotate, process)) for process in range(4)]
    assert [ended(pid) for pid in pids] == [0] * 4
    found = Connection.objects.get()
    numbers = list(
        CredentialVersion.objects.order_by("created_at", "number").values_list("number", flat=True)
    )
    assert numbers == list(range(1, found.current_number + 1))
    assert found.current_number >= 6
    now = read_current(vault)
    word = now["username"].reveal().removeprefix("user-")
    assert now == login(word)
    settle(vault)
    assert len(vault.live()) == 1


@pytest.mark.parametrize("point", ["after CompleteCredentialWrite", "after RecordCredentialWrite"])
def test_a_rotation_killed_half_way_changes_nothing(vault: Vault, point: str) -> None:
    create(vault)

    def rotate() -> None:
        vault.service(killing_at(point)).rotate_connection("source", login("second"))

    assert in_a_process_of_its_own(rotate) == -signal.SIGKILL
    assert read_current(vault) == login("first")
    settle(vault)
    assert len(vault.live()) == 1
    assert vault.service().rotate_connection("source", login("third")).number == 2


def test_a_reconciler_killed_before_the_old_version_is_destroyed(vault: Vault) -> None:
    create(vault)
    vault.service().rotate_connection("source", login("second"))
    for point in ("before destroy", "after destroy", "before DestroyRetiredSecret"):

        def die(point: str = point) -> None:
            reconciler = vault.reconciler()
            object.__setattr__(reconciler.driver, "witness", killing_at(point))
            reconciler.reconcile_credentials()

        assert in_a_process_of_its_own(die) == -signal.SIGKILL
    settle(vault)
    assert len(vault.live()) == 1


def test_a_pinned_version_outlives_its_rotation(vault: Vault) -> None:
    first = create(vault)
    pinned = versions.pin_versions("job:1", ["source"])
    assert pinned["source"].pk == first.pk
    second = vault.service().rotate_connection("source", login("second"))
    settle(vault)
    assert vault.live() == {first.path, second.path}
    assert [version.pk for version in versions.readable("job:1")] == [first.pk]
    versions.unpin(["job:1"])
    settle(vault)
    assert vault.live() == {second.path}


def test_a_later_attempt_pins_what_is_current_then(vault: Vault) -> None:
    create(vault)
    versions.pin_versions("job:1", ["source"])
    second = vault.service().rotate_connection("source", login("second"))
    assert versions.pin_versions("job:1", ["source"])["source"].pk == second.pk
    assert VersionPin.objects.count() == 1
    versions.pin_versions("job:1", ["source"])
    assert VersionPin.objects.count() == 1
    assert versions.owners_with_secrets(["job:1", "job:2"]) == {"job:1"}
    assert versions.holders_with_pins(10) == ["job:1"]
    assert versions.holders_with_pins(10, after="job:1") == []


def test_pinning_against_rotating_and_destroying_never_leaves_a_pin_on_a_destroyed_version(
    vault: Vault,
) -> None:
    create(vault)

    def pin(number: int) -> int:
        for turn in range(10):
            versions.pin_versions(f"job:{number}-{turn}", ["source"])
        return 10

    def rotate() -> int:
        for turn in range(4):
            vault.service().rotate_connection("source", login(f"t{turn}"))
        return 4

    def sweep() -> int:
        for _ in range(6):
            vault.reconciler(PATIENT).reconcile_credentials()
        return 6

    results = in_threads([lambda: pin(1), lambda: pin(2), rotate, sweep])
    assert results == [10, 10, 4, 6]
    assert VersionPin.objects.count() == 20
    assert not VersionPin.objects.exclude(version__state=VersionState.LIVE).exists()
    settle(vault)
    pinned = set(VersionPin.objects.values_list("version__path", flat=True))
    assert pinned <= vault.live()
    assert len(vault.live() - pinned) <= 1


def test_an_authorisation_that_is_rolled_back_pins_nothing(vault: Vault) -> None:
    create(vault)

    def authorise() -> None:
        with transaction.atomic():
            versions.pin_versions("job:1", ["source"])
            raise Stopped

    with pytest.raises(Stopped):
        authorise()
    assert not VersionPin.objects.exists()


def test_a_retired_connection_goes_when_its_last_holder_does(vault: Vault) -> None:
    first = create(vault)
    versions.pin_versions("job:1", ["source"])
    vault.service().retire_connection("source")
    for use in (
        lambda: versions.pin_versions("job:2", ["source"]),
        lambda: vault.service().rotate_connection("source", login("x")),
        lambda: vault.service().retire_connection("no such"),
    ):
        with pytest.raises(ConnectionUnknown):
            use()
    settle(vault)
    assert vault.live() == {first.path}
    versions.unpin(["job:1"])
    settle(vault)
    assert vault.live() == set()
    with pytest.raises(CredentialConflict):
        create(vault)


def test_retiring_against_a_rotation_on_its_way(vault: Vault) -> None:
    create(vault)

    def retire(point: str) -> None:
        if point == "before CommitCredentialVersion":
            vault.service().retire_connection("source")

    with pytest.raises(CredentialConflict):
        vault.service(retire).rotate_connection("source", login("second"))
    settle(vault)
    assert vault.live() == set()


def test_a_creation_that_failed_may_be_repeated_and_a_success_not(vault: Vault) -> None:
    with pytest.raises(Stopped):
        vault.service(raising_at("after CompleteCredentialWrite")).create_connection(
            "source", "http", {}, login("a")
        )
    assert Connection.objects.get().current_number == 0
    assert create(vault, word="b").number == 1
    with pytest.raises(CredentialConflict):
        create(vault, word="c")
    settle(vault)
    assert read_current(vault) == login("b")


def test_a_wrong_expectation_is_refused_before_anything_is_written(vault: Vault) -> None:
    create(vault)
    with pytest.raises(CredentialConflict):
        vault.service().rotate_connection("source", login("x"), expected_number=7)
    assert CredentialIntent.objects.count() == 1
