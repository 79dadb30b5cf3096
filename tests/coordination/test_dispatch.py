"""From marker to lease: what each script answers, and what a repeat, a rival or a stale offer gets."""

from tests.coordination.support import QUEUE, Data, leased, marker_fact, reserved
from workers.coordination.replies import (
    ActivateReply,
    EnqueueReply,
    ReleaseReservationReply,
    ReserveReply,
    SweepReply,
)
from workers.coordination.requests import (
    ActivateRequest,
    EnqueueRequest,
    PermitLimits,
    ReleaseReservationRequest,
    ReserveRequest,
)
from workers.coordination.store import CoordinationStore


def ask(job: str = "j1", token: int = 1, claim: str = "c1", **fields: object) -> ReserveRequest:
    incarnation = str(fields.pop("incarnation", "w1"))
    queue = str(fields.pop("queue", QUEUE))
    return ReserveRequest(job, token, incarnation, claim, queue, **fields)  # type: ignore[arg-type]


def test_a_marker_is_set_once_and_only_the_first_caller_publishes(store: CoordinationStore) -> None:
    request = EnqueueRequest("j1", 1, QUEUE, priority=-3)
    assert store.enqueue([request, request]) == [EnqueueReply.ENQUEUED, EnqueueReply.MARKER_PRESENT]
    marker = store.snapshot(["j1"]).facts["j1"].marker
    assert marker is not None
    assert (marker.expected_token, marker.queue, marker.priority, marker.offers) == (1, QUEUE, -3, 1)


def test_an_offer_that_nobody_took_is_made_again_at_growing_intervals(
    store: CoordinationStore, data: Data
) -> None:
    request = EnqueueRequest("j1", 1, QUEUE)
    now = data.now_ms()
    data.write("markers", "j1", marker_fact(data, offered_ms=now - store.timing.reoffer_ms))
    assert store.enqueue([request, request]) == [EnqueueReply.REOFFERED, EnqueueReply.MARKER_PRESENT]
    data.write("markers", "j1", data.read("markers", "j1") | {"offered_ms": now - store.timing.reoffer_ms})
    assert store.enqueue([request]) == [EnqueueReply.MARKER_PRESENT]
    data.write(
        "markers", "j1", data.read("markers", "j1") | {"offered_ms": now - 2 * store.timing.reoffer_ms}
    )
    assert store.enqueue([request]) == [EnqueueReply.REOFFERED]
    late = {"offers": 10**6, "offered_ms": now - store.timing.reoffer_max_ms}
    data.write("markers", "j1", data.read("markers", "j1") | late)
    assert store.enqueue([request]) == [EnqueueReply.REOFFERED]


def test_a_marker_of_an_older_token_is_replaced_and_of_a_newer_one_left(
    store: CoordinationStore, data: Data
) -> None:
    data.write("markers", "j1", marker_fact(data, expected_token=2))
    assert store.enqueue([EnqueueRequest("j1", 1, QUEUE)]) == [EnqueueReply.MARKER_FOR_NEWER_TOKEN]
    assert store.enqueue([EnqueueRequest("j1", 3, QUEUE)]) == [EnqueueReply.ENQUEUED]
    assert data.read("markers", "j1")["expected_token"] == 3


def test_no_marker_appears_beside_a_reservation(store: CoordinationStore) -> None:
    reserved(store, "j1")
    assert store.enqueue([EnqueueRequest("j1", 1, QUEUE)]) == [EnqueueReply.RESERVED]
    assert store.snapshot(["j1"]).facts["j1"].marker is None


def test_a_reservation_goes_to_one_claim_and_its_repeat(store: CoordinationStore) -> None:
    store.enqueue([EnqueueRequest("j1", 1, QUEUE)])
    asked = [ask(), ask(), ask(claim="c2"), ask(incarnation="w2"), ask(token=2)]
    assert store.reserve(asked) == [
        ReserveReply.RESERVED,
        ReserveReply.ALREADY_YOURS,
        ReserveReply.TAKEN,
        ReserveReply.TAKEN,
        ReserveReply.TAKEN,
    ]
    reservation = store.snapshot(["j1"]).facts["j1"].reservation
    assert reservation is not None
    assert (reservation.expected_token, reservation.incarnation, reservation.claim) == (1, "w1", "c1")


def test_an_offer_of_another_token_takes_nothing_and_leaves_the_marker(store: CoordinationStore) -> None:
    store.enqueue([EnqueueRequest("j1", 2, QUEUE)])
    assert store.reserve([ask(token=1), ask(token=3), ask("j2")]) == [
        ReserveReply.MARKER_FOR_OTHER_TOKEN,
        ReserveReply.MARKER_FOR_OTHER_TOKEN,
        ReserveReply.NO_MARKER,
    ]
    assert store.reserve([ask(token=2)]) == [ReserveReply.RESERVED]


def test_each_limit_counts_reservations_and_leases_and_a_refusal_leaves_the_marker(
    store: CoordinationStore,
) -> None:
    leased(store, "held", queue="slow", concurrency_key="k")
    store.enqueue([EnqueueRequest("j1", 1, "slow")])
    refused = store.reserve(
        [
            ask(queue="slow", concurrency_key="k", limits=PermitLimits(1, 1, 1, 1)),
            ask(queue="slow", concurrency_key="k", limits=PermitLimits(2, 1, 1, 1)),
            ask(queue="slow", concurrency_key="k", limits=PermitLimits(2, 2, 1, 1)),
            ask(queue="slow", limits=PermitLimits(local_limit=2), executing_here=2),
        ]
    )
    assert refused == [
        ReserveReply.GLOBAL_LIMIT,
        ReserveReply.QUEUE_LIMIT,
        ReserveReply.KEY_LIMIT,
        ReserveReply.LOCAL_LIMIT,
    ]
    marker = store.snapshot(["j1"]).facts["j1"].marker
    assert marker is not None
    assert marker.refused == "local_limit"
    free = ask(queue="slow", concurrency_key="other", limits=PermitLimits(2, 2, 1, 1))
    assert store.reserve([free]) == [ReserveReply.RESERVED]


def test_a_local_limit_counts_the_incarnations_reservations_and_what_it_executes(
    store: CoordinationStore,
) -> None:
    reserved(store, "held")
    store.enqueue([EnqueueRequest("j1", 1, QUEUE)])
    limits = PermitLimits(local_limit=2)
    assert store.reserve([ask(limits=limits, executing_here=1)]) == [ReserveReply.LOCAL_LIMIT]
    assert store.reserve([ask(limits=limits, incarnation="w2", executing_here=1)]) == [ReserveReply.RESERVED]


def test_jobs_without_a_concurrency_key_do_not_share_its_limit(store: CoordinationStore) -> None:
    reserved(store, "held")
    store.enqueue([EnqueueRequest("j1", 1, QUEUE)])
    assert store.reserve([ask(limits=PermitLimits(key_limit=1))]) == [ReserveReply.RESERVED]


def test_a_limit_of_zero_closes_and_names_that_begin_alike_do_not_share_one(
    store: CoordinationStore,
) -> None:
    reserved(store, "held", queue="fast", concurrency_key="k1")
    store.enqueue([EnqueueRequest("j1", 1, "fa"), EnqueueRequest("j2", 1, "fa")])
    one = PermitLimits(queue_limit=1, key_limit=1)
    assert store.reserve([ask(queue="fa", concurrency_key="k", limits=one)]) == [ReserveReply.RESERVED]
    closed = ask("j2", queue="fa", limits=PermitLimits(global_limit=0))
    assert store.reserve([closed]) == [ReserveReply.GLOBAL_LIMIT]


def test_a_batch_takes_no_more_than_the_limit(store: CoordinationStore) -> None:
    jobs = [f"j{number}" for number in range(120)]
    store.enqueue([EnqueueRequest(job, 1, QUEUE) for job in jobs])
    replies = store.reserve([ask(job, limits=PermitLimits(global_limit=70)) for job in jobs])
    assert replies == [ReserveReply.RESERVED] * 70 + [ReserveReply.GLOBAL_LIMIT] * 50
    assert store.count_permits().total == 70


def test_a_young_epoch_keeps_permits_for_those_who_lost_theirs(store: CoordinationStore) -> None:
    store.enqueue([EnqueueRequest("j1", 1, QUEUE)])
    assert store.reserve([ask()], settle_ms=60_000) == [ReserveReply.SETTLING]
    assert store.reserve([ask()], settle_ms=0) == [ReserveReply.RESERVED]


def test_a_reservation_becomes_a_lease_with_its_queue_and_key(store: CoordinationStore) -> None:
    reserved(store, "j1", queue="slow", concurrency_key="k")
    request = ActivateRequest("j1", 1, "a1", "w1", "claim-j1-1", progress=2**62)
    first, again = store.activate_attempt([request, request])
    assert (first.reply, again.reply) == (ActivateReply.ACTIVATED, ActivateReply.ALREADY_ACTIVE)
    assert first.epoch == again.epoch == store.epoch().value
    facts = store.snapshot(["j1"]).facts["j1"]
    assert facts.reservation is None
    assert facts.lease is not None
    assert (facts.lease.token, facts.lease.attempt_id) == (1, "a1")
    assert (facts.lease.queue, facts.lease.concurrency_key) == ("slow", "k")
    assert facts.progress is not None
    assert (facts.progress.token, facts.progress.progress) == (1, 2**62)
    assert store.count_permits(["slow"], ["k"], ["w1"]).total == 1


def test_only_the_claim_that_reserved_for_this_token_may_activate(store: CoordinationStore) -> None:
    reserved(store, "j1", claim="c1")
    asked = [
        ActivateRequest("j1", 1, "a1", "w1", "c2"),
        ActivateRequest("j1", 1, "a1", "w2", "c1"),
        ActivateRequest("j1", 2, "a1", "w1", "c1"),
        ActivateRequest("j2", 1, "a1", "w1", "c1"),
    ]
    assert [grant.reply for grant in store.activate_attempt(asked)] == [
        ActivateReply.RESERVED_BY_ANOTHER,
        ActivateReply.RESERVED_BY_ANOTHER,
        ActivateReply.RESERVED_BY_ANOTHER,
        ActivateReply.NOT_RESERVED,
    ]


def test_activation_retires_an_older_attempts_lease_and_never_displaces_a_newer_one(
    store: CoordinationStore, data: Data
) -> None:
    leased(store, "j1", 1, queue="slow", concurrency_key="k")
    leased(store, "j1", 2, incarnation="w2")
    data.check_index()
    lease = store.snapshot(["j1"]).facts["j1"].lease
    assert lease is not None
    assert lease.token == 2
    assert store.count_permits().total == 1
    reserved(store, "j1", 1, claim="late")
    [grant] = store.activate_attempt([ActivateRequest("j1", 1, "attempt-j1-1", "w1", "late")])
    assert grant.reply is ActivateReply.SUPERSEDED
    [grant] = store.activate_attempt([ActivateRequest("j1", 2, "another attempt", "w1", "late")])
    assert grant.reply is ActivateReply.SUPERSEDED
    held = store.snapshot(["j1"]).facts["j1"].lease
    assert held is not None
    assert (held.token, held.attempt_id) == (2, lease.attempt_id)


def test_a_reservation_is_released_by_exactly_the_one_who_holds_it(store: CoordinationStore) -> None:
    reserved(store, "j1", claim="c1")
    asked = [
        ReleaseReservationRequest("j1", 1, "w1", "c2"),
        ReleaseReservationRequest("j1", 1, "w2", "c1"),
        ReleaseReservationRequest("j1", 2, "w1", "c1"),
        ReleaseReservationRequest("j1", 1, "w1", "c1"),
        ReleaseReservationRequest("j1", 1, "w1", "c1"),
    ]
    assert store.release_reservation(asked) == [
        *[ReleaseReservationReply.RESERVED_BY_ANOTHER] * 3,
        ReleaseReservationReply.RELEASED,
        ReleaseReservationReply.NOT_RESERVED,
    ]
    assert store.count_permits().total == 0


def test_only_lapsed_reservations_expire(store: CoordinationStore, data: Data) -> None:
    reserved(store, "old", 3)
    reserved(store, "new")
    leased(store, "lease")
    data.older(store.timing.reservation_ms, "reservation/old")
    data.older(store.timing.lease_ms, "lease/lease")
    sweep = store.expire_reservations()
    assert sweep.reply is SweepReply.SWEPT
    assert [(one.job_id, one.token, one.incarnation) for one in sweep.lapsed] == [("old", 3, "w1")]
    assert store.expire_reservations().lapsed == ()
    data.check_index()
