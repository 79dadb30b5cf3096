"""Half-lost keys, foreign values, facts of another life: never a permit beyond the limit, never a crash."""

from itertools import combinations

import pytest

from tests.coordination.support import (
    QUEUE,
    Data,
    lease_fact,
    leased,
    marker_fact,
    reservation_fact,
    reserved,
)
from workers.coordination.facts import Garbage
from workers.coordination.keys import NAMES
from workers.coordination.replies import (
    ActivateReply,
    DiscardReply,
    EnqueueReply,
    RenewReply,
    ReserveReply,
)
from workers.coordination.requests import (
    ActivateRequest,
    CleanRequest,
    ClearProgressRequest,
    EnqueueRequest,
    Heartbeat,
    NoticeRequest,
    PermitLimits,
    RegrantRequest,
    ReleaseLeaseRequest,
    ReleaseReservationRequest,
    RenewRequest,
    ReportRequest,
    ReserveRequest,
)
from workers.coordination.store import CoordinationStore

LIMITS = PermitLimits(global_limit=2, queue_limit=2, key_limit=2, local_limit=2)
LOSABLE = [lost for size in (1, 2, 3, 4) for lost in combinations(NAMES[:5], size)]
GARBAGE = ["", "{", "null", "[]", "7", '"text"', "\xff\xfe", "{}", '{"token":1}', '{"token":-1}', "[" * 300]


def fill(store: CoordinationStore) -> list[RenewRequest]:
    """Two permits, which is all there are: a lease and a reservation; and a job that waits."""
    renew = leased(store, "leased", concurrency_key="k")
    reserved(store, "reserved", concurrency_key="k")
    store.enqueue([EnqueueRequest("waiting", 1, QUEUE)])
    return [renew]


def ask(job: str, claim: str = "c") -> ReserveRequest:
    return ReserveRequest(job, 1, "w1", claim, QUEUE, "k", LIMITS)


@pytest.mark.parametrize("lost", LOSABLE, ids="+".join)
def test_whichever_keys_are_lost_no_permit_is_granted_beyond_the_limit(
    store: CoordinationStore, data: Data, lost: tuple[str, ...]
) -> None:
    [renew] = fill(store)
    data.raw.delete(*(data.key(name) for name in lost))
    for job in ("waiting", "more", "reserved"):
        store.enqueue([EnqueueRequest(job, 1, QUEUE)])
    store.regrant_lease(
        [RegrantRequest("leased", 1, renew.attempt_id, "w1", renew.grant_epoch, QUEUE, "k", LIMITS)]
    )
    store.reserve([ask(job) for job in ("waiting", "more", "reserved")])
    counts = store.count_permits([QUEUE], ["k"], ["w1"])
    assert counts.total == len(list(data.permits())) == counts.by_queue[QUEUE] == counts.by_key["k"] == 2
    data.check_index()
    kept = store.renew_lease([renew])
    assert kept == [RenewReply.RENEWED], (
        "with the truth intact the lease is kept; with it lost it was regranted"
    )


@pytest.mark.parametrize("lost", ["permits", "permits+index", "permits+lease_due"])
def test_whatever_takes_the_leases_takes_the_epoch_too(
    store: CoordinationStore, data: Data, lost: str
) -> None:
    [renew] = fill(store)
    data.raw.delete(*(data.key(name) for name in lost.split("+")))
    assert store.renew_lease([renew]) == [RenewReply.LEASE_LOST]
    assert store.epoch().value != renew.grant_epoch


def test_a_lapsed_lease_is_found_although_the_list_of_deadlines_was_lost(
    store: CoordinationStore, data: Data
) -> None:
    fill(store)
    data.older(store.timing.lease_ms)  # which also loses index and both lists of deadlines
    assert [one.job_id for one in store.expire_leases().lapsed] == ["leased"]
    assert [one.job_id for one in store.expire_reservations().lapsed] == ["reserved"]


@pytest.mark.parametrize("text", GARBAGE)
def test_a_lease_that_cannot_be_read_is_absent_and_holds_no_permit(
    store: CoordinationStore, data: Data, text: str
) -> None:
    [renew] = fill(store)
    data.write("permits", "lease/leased", text)
    data.write("permits", "lease/stranger", text)
    assert store.count_permits([QUEUE]).by_queue[QUEUE] == 1
    assert store.renew_lease([renew]) == [RenewReply.LEASE_EXPIRED]
    assert store.reserve([ask("waiting")]) == [ReserveReply.RESERVED]
    data.check_index()


@pytest.mark.parametrize(
    "wrong",
    [
        {"token": "1"},
        {"token": 1.5},
        {"token": 1e300},
        {"deadline_ms": 10**14},
        {"since_ms": 10**14},
        {"attempt": None},
        {"attempt": "a\0b"},
        {"queue": "q" * 3000},
        {"epoch": "another life"},
    ],
    ids=str,
)
def test_a_lease_of_the_wrong_shape_or_of_another_epoch_is_absent(
    store: CoordinationStore, data: Data, wrong: dict[str, object]
) -> None:
    store.epoch()
    data.write("permits", "lease/j1", lease_fact(data, store.timing, **wrong))
    assert store.snapshot(["j1"]).facts["j1"].lease is None
    assert store.count_permits().total == 0
    data.check_index()


def test_a_well_formed_lease_that_appears_from_nowhere_is_counted(
    store: CoordinationStore, data: Data
) -> None:
    store.epoch()
    data.write("permits", "lease/j1", lease_fact(data, store.timing))
    data.write("permits", "reservation/j2", reservation_fact(data, store.timing))
    store.enqueue([EnqueueRequest("waiting", 1, QUEUE)])
    assert store.reserve([ask("waiting")]) == [ReserveReply.GLOBAL_LIMIT]
    data.check_index()


def test_strangers_in_the_index_are_thrown_out(store: CoordinationStore, data: Data) -> None:
    fill(store)
    data.raw.zadd(data.key("index"), {f"q\0{QUEUE}\0lease\0ghost{number}": 0 for number in range(5)})
    data.raw.zadd(data.key("lease_due"), {"ghost": 1})
    assert store.count_permits([QUEUE]).by_queue[QUEUE] == 2
    data.check_index()


def test_a_scan_puts_right_what_the_sizes_do_not_show(store: CoordinationStore, data: Data) -> None:
    fill(store)
    [member] = [one for one in data.raw.zrange(data.key("index"), 0, -1) if one.endswith("lease\0leased")][:1]
    data.raw.zrem(data.key("index"), member)
    data.raw.zadd(data.key("index"), {"q\0elsewhere\0lease\0ghost": 0})
    data.raw.zadd(data.key("lease_due"), {"leased": 10**15})
    store.scan_jobs()
    store.epoch()
    data.check_index()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["string", "list", "hash", "zset"])
def test_a_key_of_a_foreign_type_stops_no_script(
    store: CoordinationStore, data: Data, name: str, kind: str
) -> None:
    [renew] = fill(store)
    key = data.key(name)
    data.raw.delete(key)
    put = {
        "string": lambda: data.raw.set(key, "text"),
        "list": lambda: data.raw.rpush(key, "text"),
        "hash": lambda: data.raw.hset(key, "field", "text"),
        "zset": lambda: data.raw.zadd(key, {"member": 7}),
    }
    put[kind]()
    call_every_script(store, renew)
    assert store.count_permits().total <= 2
    data.check_index()


@pytest.mark.parametrize("text", GARBAGE)
def test_values_that_cannot_be_read_stop_no_script(store: CoordinationStore, data: Data, text: str) -> None:
    [renew] = fill(store)
    for name in ("markers", "notices", "progress", "presence"):
        for field in ("leased", "reserved", "waiting", "w1", "@watch"):
            data.write(name, field, text)
    assert store.snapshot(["waiting"]).facts["waiting"].empty
    assert store.reserve([ask("waiting")]) == [ReserveReply.NO_MARKER]
    assert store.enqueue([EnqueueRequest("waiting", 1, QUEUE)]) == [EnqueueReply.ENQUEUED]
    assert not store.heartbeat([Heartbeat(renew)])[0].cancel_notice
    call_every_script(store, renew)


def test_an_epoch_that_cannot_be_read_ends(store: CoordinationStore, data: Data) -> None:
    [renew] = fill(store)
    data.write("permits", "@epoch", "{}")
    assert store.renew_lease([renew]) == [RenewReply.LEASE_LOST]
    assert store.count_permits().total == 0


def test_a_leftover_reservation_of_another_token_authorises_nothing(
    store: CoordinationStore, data: Data
) -> None:
    store.epoch()
    data.write("permits", "reservation/j1", reservation_fact(data, store.timing, expected_token=1))
    data.write("markers", "j1", marker_fact(data, expected_token=2))
    assert store.reserve([ReserveRequest("j1", 2, "w1", "c1", QUEUE)]) == [ReserveReply.TAKEN]
    [grant] = store.activate_attempt([ActivateRequest("j1", 2, "a2", "w1", "c1")])
    assert grant.reply is ActivateReply.RESERVED_BY_ANOTHER


def test_a_scan_lists_every_job_and_what_cannot_be_read(store: CoordinationStore, data: Data) -> None:
    fill(store)
    store.publish_cancel_notice([NoticeRequest("noticed", 1)])
    for number in range(1200):
        data.write("markers", f"m{number}", marker_fact(data))
    data.write("markers", "broken", "{")
    data.write("progress", "brok\udcff", "{")
    data.write("notices", "a\0b", '{"token":1,"at_ms":1}')
    jobs, garbage = scan(store)
    expected = {"leased", "reserved", "waiting", "noticed", *(f"m{number}" for number in range(1200))}
    assert jobs == expected
    assert garbage == {
        Garbage("markers", "broken"),
        Garbage("progress", "brok\udcff"),
        Garbage("notices", "a\0b"),
    }
    assert set(store.discard_garbage(sorted(garbage, key=str))) == {DiscardReply.DISCARDED}
    assert scan(store) == (expected, set())


def test_a_fact_written_over_garbage_is_not_discarded(store: CoordinationStore, data: Data) -> None:
    data.write("markers", "j1", "{")
    _, garbage = scan(store)
    store.enqueue([EnqueueRequest("j1", 1, QUEUE)])
    asked = [*garbage, Garbage("markers", "gone"), Garbage("permits", "@epoch")]
    assert store.discard_garbage(asked) == [
        DiscardReply.WELL_FORMED,
        DiscardReply.ABSENT,
        DiscardReply.WELL_FORMED,
    ]


def scan(store: CoordinationStore) -> tuple[set[str], set[Garbage]]:
    jobs: set[str] = set()
    garbage: set[Garbage] = set()
    cursor = None
    for _ in range(1000):
        page = store.scan_jobs(cursor, rows_hint=100)
        jobs.update(page.job_ids)
        garbage.update(page.garbage)
        cursor = page.cursor
        if cursor is None:
            return jobs, garbage
    raise AssertionError("the scan does not end")


def call_every_script(store: CoordinationStore, renew: RenewRequest) -> None:
    """Whatever the answer: none may fail."""
    job, attempt = renew.job_id, renew.attempt_id
    store.epoch()
    store.enqueue([EnqueueRequest("more", 1, QUEUE)])
    store.reserve([ask("more"), ask("waiting")])
    store.activate_attempt([ActivateRequest("reserved", 1, "a", "w1", "claim-reserved-1")])
    store.heartbeat([Heartbeat(renew, ReportRequest(job, 1, attempt, 1))])
    store.regrant_lease([RegrantRequest(job, 1, attempt, "w1", renew.grant_epoch, QUEUE, "k", LIMITS)])
    store.publish_cancel_notice([NoticeRequest(job, 1)])
    store.clear_stale_live_progress([ClearProgressRequest(job, 1, 1)])
    store.snapshot([job, "waiting"])
    store.expire_leases()
    store.expire_reservations()
    scan(store)
    store.renew_presence(["w1"])
    store.absent_workers(["w1", "w2"])
    store.drop_presence(["w1"])
    store.release_reservation([ReleaseReservationRequest("reserved", 1, "w1", "claim-reserved-1")])
    store.release_lease([ReleaseLeaseRequest(job, 1, attempt)])
    store.clean_terminal_coordination([CleanRequest(job, 1)])
