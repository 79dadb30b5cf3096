"""A lease is live while it is present: who may push it, who may end it, and what its holder hears
afterwards.
"""

from dataclasses import replace

from tests.coordination.support import Data, leased, reserved
from workers.coordination.replies import (
    RegrantReply,
    ReleaseLeaseReply,
    RenewReply,
    ReportReply,
    SweepReply,
)
from workers.coordination.requests import (
    Heartbeat,
    NoticeRequest,
    PermitLimits,
    RegrantRequest,
    ReleaseLeaseRequest,
    RenewRequest,
    ReportRequest,
)
from workers.coordination.store import CoordinationStore


def regrant(lost: RenewRequest, limits: PermitLimits | None = None, **fields: str) -> RegrantRequest:
    request = RegrantRequest(
        lost.job_id, lost.token, lost.attempt_id, "w1", lost.grant_epoch, fields.get("queue", "default")
    )
    return replace(request, limits=limits or PermitLimits(), concurrency_key=fields.get("key", ""))


def wipe(data: Data) -> None:
    data.raw.delete(*data.keys.all())


def test_a_lease_past_its_deadline_is_still_renewed_while_it_is_present(
    store: CoordinationStore, data: Data
) -> None:
    renew = leased(store, "j1")
    data.older(10 * store.timing.lease_ms)
    lapsed = store.snapshot(["j1"]).facts["j1"].lease
    assert lapsed is not None
    assert lapsed.lapsed
    assert store.renew_lease([renew]) == [RenewReply.RENEWED]
    assert store.expire_leases().lapsed == ()


def test_a_lease_that_expired_is_never_renewed_or_granted_again(store: CoordinationStore, data: Data) -> None:
    renew = leased(store, "j1")
    data.older(store.timing.lease_ms)
    sweep = store.expire_leases()
    assert [(one.job_id, one.token, one.incarnation) for one in sweep.lapsed] == [("j1", 1, "w1")]
    assert store.renew_lease([renew]) == [RenewReply.LEASE_EXPIRED]
    [grant] = store.regrant_lease([regrant(renew)])
    assert grant.reply is RegrantReply.LEASE_EXPIRED
    assert store.snapshot(["j1"]).facts["j1"].lease is None
    data.check_index()


def test_a_lease_lost_with_the_data_is_granted_again_and_only_once(
    store: CoordinationStore, data: Data
) -> None:
    renew = leased(store, "j1")
    wipe(data)
    assert store.renew_lease([renew]) == [RenewReply.LEASE_LOST]
    first, again = store.regrant_lease([regrant(renew), regrant(renew)])
    assert (first.reply, again.reply) == (RegrantReply.REGRANTED, RegrantReply.ALREADY_LIVE)
    assert first.epoch != renew.grant_epoch
    assert store.renew_lease([replace(renew, grant_epoch=first.epoch)]) == [RenewReply.RENEWED]
    assert store.count_permits().total == 1


def test_a_lease_granted_again_expires_for_good_like_any_other(store: CoordinationStore, data: Data) -> None:
    renew = leased(store, "j1")
    wipe(data)
    [grant] = store.regrant_lease([regrant(renew)])
    regranted = replace(renew, grant_epoch=grant.epoch)
    data.older(store.timing.lease_ms)
    assert len(store.expire_leases().lapsed) == 1
    assert store.renew_lease([regranted]) == [RenewReply.LEASE_EXPIRED]
    assert [one.reply for one in store.regrant_lease([regrant(regranted)])] == [RegrantReply.LEASE_EXPIRED]


def test_a_regrant_needs_a_free_permit_of_each_kind(store: CoordinationStore, data: Data) -> None:
    lost = leased(store, "j1", queue="slow", concurrency_key="k")
    wipe(data)
    reserved(store, "j2", queue="slow", concurrency_key="k")
    asked = [
        regrant(lost, PermitLimits(1, 1, 1), queue="slow", key="k"),
        regrant(lost, PermitLimits(2, 1, 1), queue="slow", key="k"),
        regrant(lost, PermitLimits(2, 2, 1), queue="slow", key="k"),
        regrant(lost, PermitLimits(2, 2, 2), queue="slow", key="k"),
    ]
    assert [grant.reply for grant in store.regrant_lease(asked)] == [
        RegrantReply.GLOBAL_LIMIT,
        RegrantReply.QUEUE_LIMIT,
        RegrantReply.KEY_LIMIT,
        RegrantReply.REGRANTED,
    ]


def test_an_older_attempt_can_neither_renew_nor_release_nor_regain_what_a_newer_one_holds(
    store: CoordinationStore, data: Data
) -> None:
    older = leased(store, "j1", 1)
    newer = leased(store, "j1", 2)
    assert store.renew_lease([older]) == [RenewReply.SUPERSEDED]
    assert store.release_lease([ReleaseLeaseRequest("j1", 1, older.attempt_id)]) == [
        ReleaseLeaseReply.SUPERSEDED
    ]
    lost = replace(older, grant_epoch="an epoch of before")
    assert [grant.reply for grant in store.regrant_lease([regrant(lost)])] == [RegrantReply.SUPERSEDED]
    assert store.renew_lease([newer]) == [RenewReply.RENEWED]


def test_the_same_token_of_another_attempt_is_somebody_elses(store: CoordinationStore) -> None:
    mine = leased(store, "j1")
    other = replace(mine, attempt_id="another attempt", grant_epoch="an epoch of before")
    assert store.renew_lease([other]) == [RenewReply.SUPERSEDED]
    assert [grant.reply for grant in store.regrant_lease([regrant(other)])] == [RegrantReply.SUPERSEDED]
    assert store.release_lease([ReleaseLeaseRequest("j1", 1, "another attempt")]) == [
        ReleaseLeaseReply.SUPERSEDED
    ]


def test_a_regrant_retires_an_older_attempts_leftover(store: CoordinationStore, data: Data) -> None:
    leased(store, "j1", 1, queue="slow", incarnation="w2")
    lost = RenewRequest("j1", 2, "a2", "an epoch of before")
    assert [grant.reply for grant in store.regrant_lease([regrant(lost)])] == [RegrantReply.REGRANTED]
    data.check_index()
    lease = store.snapshot(["j1"]).facts["j1"].lease
    assert lease is not None
    assert (lease.token, store.count_permits().total) == (2, 1)


def test_a_lease_is_released_once(store: CoordinationStore, data: Data) -> None:
    renew = leased(store, "j1", 2)
    asked = [ReleaseLeaseRequest("j1", 3, "a3"), *[ReleaseLeaseRequest("j1", 2, renew.attempt_id)] * 2]
    assert store.release_lease(asked) == [
        ReleaseLeaseReply.LEASE_NOT_LIVE,
        ReleaseLeaseReply.RELEASED,
        ReleaseLeaseReply.LEASE_NOT_LIVE,
    ]
    assert store.renew_lease([renew]) == [RenewReply.LEASE_EXPIRED]
    data.check_index()


def test_a_sweep_is_bounded_and_says_that_there_is_more(store: CoordinationStore, data: Data) -> None:
    for number in range(5):
        leased(store, f"j{number}")
    data.older(store.timing.lease_ms)
    sizes = [(len(sweep.lapsed), sweep.more) for sweep in (store.expire_leases(rows_max=2) for _ in range(3))]
    assert sizes == [(2, True), (2, True), (1, False)]


def test_after_a_gap_in_which_nobody_swept_the_living_get_one_renew_period(
    store: CoordinationStore, data: Data
) -> None:
    alive, dead = leased(store, "alive"), leased(store, "dead")
    data.older(2 * store.timing.lease_ms)
    now = data.now_ms()
    data.sweep_marks(lease_swept_ms=now - store.timing.sweep_gap_ms - 1)
    first = store.expire_leases()
    assert (first.reply, first.lapsed) == (SweepReply.GRACE, ())
    assert store.expire_leases().reply is SweepReply.GRACE
    assert store.renew_lease([alive]) == [RenewReply.RENEWED]
    data.sweep_marks(lease_grace_until_ms=data.now_ms())  # the grace is over
    assert [one.job_id for one in store.expire_leases().lapsed] == ["dead"]
    assert store.renew_lease([dead]) == [RenewReply.LEASE_EXPIRED]


def test_a_clock_set_back_keeps_no_dead_lease_alive(store: CoordinationStore, data: Data) -> None:
    leased(store, "j1")
    hour_ms = 3_600_000
    data.older(-hour_ms)  # the lease was written an hour ahead of the clock as it is now
    data.sweep_marks(lease_swept_ms=data.now_ms() + hour_ms, lease_grace_until_ms=data.now_ms() + hour_ms)
    store.expire_leases()
    grace_until_ms = data.read("permits", "@epoch")["lease_grace_until_ms"]
    assert grace_until_ms <= data.now_ms() + store.timing.renew_ms
    data.sweep_marks(lease_grace_until_ms=0)
    store.expire_leases()
    lease = data.read("permits", "lease/j1")
    assert lease["deadline_ms"] <= data.now_ms() + store.timing.lease_ms
    data.check_index()


def test_a_deadline_is_read_from_the_lease_itself(store: CoordinationStore, data: Data) -> None:
    renew = leased(store, "j1")
    data.raw.zadd(data.key("lease_due"), {"j1": 1})
    assert store.expire_leases().lapsed == ()
    data.check_index()
    assert store.renew_lease([renew]) == [RenewReply.RENEWED]


def test_a_heartbeat_renews_reports_and_hears_in_one_answer(store: CoordinationStore) -> None:
    cancelled, plain = leased(store, "j1"), leased(store, "j2")
    store.publish_cancel_notice([NoticeRequest("j1", 1)])
    gone = RenewRequest("j3", 1, "a", store.epoch().value)
    report = ReportRequest("j1", 1, cancelled.attempt_id, 7, 10, "copying")
    late = ReportRequest("j3", 1, "a", 7)
    first, second, third = store.heartbeat(
        [Heartbeat(cancelled, report), Heartbeat(plain), Heartbeat(gone, late)]
    )
    assert (first.lease, first.cancel_notice, first.report) == (
        RenewReply.RENEWED,
        True,
        ReportReply.REPORTED,
    )
    assert (second.lease, second.cancel_notice, second.report) == (RenewReply.RENEWED, False, None)
    assert (third.lease, third.report) == (RenewReply.LEASE_EXPIRED, ReportReply.LEASE_NOT_LIVE)
    progress = store.snapshot(["j1"]).facts["j1"].progress
    assert progress is not None
    assert (progress.progress, progress.total, progress.phase) == (7, 10, "copying")
