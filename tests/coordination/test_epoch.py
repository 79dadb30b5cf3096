"""An epoch ends with a wipe or a restart, whatever the restarted server remembers; then what was live is
lost, not dead.
"""

from dataclasses import replace

import pytest

from tests.coordination.private_redis import PrivateRedis
from tests.coordination.support import QUEUE, Data, lease_fact, leased, reserved
from workers.coordination.replies import RegrantReply, RenewReply, ReserveReply
from workers.coordination.requests import (
    EnqueueRequest,
    RegrantRequest,
    ReleaseLeaseRequest,
    RenewRequest,
    ReserveRequest,
)
from workers.coordination.store import CoordinationStore


def regrant(store: CoordinationStore, lost: RenewRequest) -> RegrantReply:
    request = RegrantRequest(lost.job_id, lost.token, lost.attempt_id, "w1", lost.grant_epoch, QUEUE)
    [grant] = store.regrant_lease([request])
    return grant.reply


def test_an_epoch_lasts_while_nothing_happens(store: CoordinationStore) -> None:
    first, second = store.epoch(), store.epoch()
    assert (second.value, second.since_ms) == (first.value, first.since_ms)
    assert 0 <= first.age_ms <= second.age_ms


def test_a_wipe_ends_the_epoch_and_every_lease_is_granted_again(
    private_store: CoordinationStore, private_redis: PrivateRedis
) -> None:
    lost = [leased(private_store, f"j{number}") for number in range(100)]
    before = private_store.epoch()
    private_redis.raw.flushall()
    assert private_store.renew_lease(lost) == [RenewReply.LEASE_LOST] * 100
    assert private_store.epoch().value != before.value
    assert [regrant(private_store, one) for one in lost] == [RegrantReply.REGRANTED] * 100
    assert private_store.count_permits().total == 100


def test_a_restart_with_an_old_backup_brings_no_permit_back(
    private_store: CoordinationStore, private_redis: PrivateRedis, private_data: Data
) -> None:
    """The backup holds a lease that has been released since, and a reservation that became a lease."""
    over, running = leased(private_store, "over"), None
    reserved(private_store, "running")
    before = private_store.epoch().value
    private_redis.raw.save()
    private_store.release_lease([ReleaseLeaseRequest("over", 1, over.attempt_id)])
    private_redis.kill()
    private_redis.start()
    assert private_data.epoch() == before, "the server itself remembers the old epoch"
    facts = private_store.snapshot(["over", "running"])
    assert facts.epoch.value != before
    assert facts.facts["over"].lease is None
    assert facts.facts["running"].reservation is None
    assert private_store.count_permits().total == 0
    running = RenewRequest("running", 1, "a1", before)
    assert private_store.renew_lease([running]) == [RenewReply.LEASE_LOST]
    assert regrant(private_store, running) is RegrantReply.REGRANTED


@pytest.mark.parametrize("first", ["reserve", "renew", "expire", "snapshot"])
def test_a_restart_is_noticed_by_whichever_script_runs_first(
    private_store: CoordinationStore, private_redis: PrivateRedis, first: str
) -> None:
    renew = leased(private_store, "j1")
    private_store.enqueue([EnqueueRequest("waiting", 1, QUEUE)])
    private_redis.raw.save()
    private_redis.kill()
    private_redis.start()
    if first == "reserve":
        request = ReserveRequest("waiting", 1, "w1", "c1", QUEUE)
        assert private_store.reserve([request]) == [ReserveReply.RESERVED], "markers outlive a restart"
    elif first == "renew":
        assert private_store.renew_lease([renew]) == [RenewReply.LEASE_LOST]
    elif first == "expire":
        assert private_store.expire_leases().lapsed == ()
    else:
        assert private_store.snapshot(["j1"]).facts["j1"].lease is None
    assert private_store.renew_lease([renew]) == [RenewReply.LEASE_LOST]


def test_a_lease_lapsed_before_the_wipe_and_found_so_is_not_granted_again_in_its_own_epoch(
    store: CoordinationStore, data: Data
) -> None:
    renew = leased(store, "j1")
    data.older(store.timing.lease_ms)
    store.expire_leases()
    assert regrant(store, renew) is RegrantReply.LEASE_EXPIRED


def test_a_lease_of_another_epoch_is_absent_although_index_and_deadlines_have_it(
    store: CoordinationStore, data: Data
) -> None:
    current = store.epoch().value
    stray = lease_fact(data, store.timing, epoch="another life")
    data.write("permits", "lease/j1", stray)
    data.raw.zadd(data.key("lease_due"), {"j1": stray["deadline_ms"]})
    members = (f"q\0{QUEUE}\0lease\0j1", "k\0\0lease\0j1", "w\0w1\0lease\0j1")
    data.raw.zadd(data.key("index"), dict.fromkeys(members, 0))
    data.check_index()
    assert store.renew_lease([RenewRequest("j1", 1, "a1", current)]) == [RenewReply.LEASE_EXPIRED]
    assert store.count_permits().total == 0
    data.check_index()


def test_of_two_who_find_the_data_wiped_one_begins_the_epoch(store: CoordinationStore, data: Data) -> None:
    store.epoch()
    data.raw.delete(data.key("permits"))
    assert store.epoch().value == store.epoch().value == data.epoch()


def test_a_reaper_does_not_see_jobs_whose_lease_may_be_about_to_return(
    store: CoordinationStore, data: Data
) -> None:
    leased(store, "held")
    assert set(store.observe_settled(["held", "lost"])) == {"held"}
    data.sweep_marks(since_ms=data.now_ms() - store.timing.lease_ms)
    assert set(store.observe_settled(["held", "lost"])) == {"held", "lost"}
    assert set(store.observe(["held", "lost"])) == {"held", "lost"}


def test_a_snapshot_of_nothing_still_tells_the_epoch(store: CoordinationStore) -> None:
    snapshot = store.snapshot([])
    assert dict(snapshot.facts) == {}
    assert snapshot.epoch.value == store.epoch().value


def test_answers_are_keyed_by_the_ids_as_given(store: CoordinationStore) -> None:
    from jobs.ids import new_id

    job_id = new_id()
    renew = leased(store, str(job_id))
    assert store.renew_lease([replace(renew, job_id=job_id)]) == [RenewReply.RENEWED]
    facts = store.snapshot([job_id, str(job_id)]).facts
    assert facts[job_id].lease is not None
    assert facts[str(job_id)].lease is not None
