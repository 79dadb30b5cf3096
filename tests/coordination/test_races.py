"""Many at once, from threads and processes: permits are never more than the limit, and exactly one wins a
job.
"""

from __future__ import annotations

import multiprocessing
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.coordination.support import QUEUE, Data, leased, reserved
from workers.coordination.connection import Connection
from workers.coordination.replies import (
    EnqueueReply,
    RegrantReply,
    ReleaseReservationReply,
    RenewReply,
    ReserveReply,
)
from workers.coordination.requests import (
    ActivateRequest,
    EnqueueRequest,
    PermitLimits,
    RegrantRequest,
    ReleaseReservationRequest,
    RenewRequest,
    ReserveRequest,
)
from workers.coordination.store import CoordinationStore, Timing

RACERS = 8
LIMIT = 5


def all_at_once(steps: list[Callable[[], str]]) -> list[str]:
    """Each step in a thread of its own, let go together; their answers in order."""
    barrier = threading.Barrier(len(steps))

    def run(step: Callable[[], str]) -> str:
        barrier.wait(timeout=10)
        return step()

    with ThreadPoolExecutor(len(steps)) as threads:
        return list(threads.map(run, steps))


def reserve_step(store: CoordinationStore, job: str, racer: int, limit: int) -> Callable[[], str]:
    request = ReserveRequest(job, 1, f"w{racer}", f"c{racer}", QUEUE, limits=PermitLimits(limit))
    return lambda: store.reserve([request])[0]


def regrant(store: CoordinationStore, request: RegrantRequest) -> str:
    return store.regrant_lease([request])[0].reply


def renew_one(store: CoordinationStore, request: RenewRequest) -> str:
    return store.renew_lease([request])[0]


def activate_one(store: CoordinationStore, request: ActivateRequest) -> str:
    return store.activate_attempt([request])[0].reply


def release_one(store: CoordinationStore, request: ReleaseReservationRequest) -> str:
    return store.release_reservation([request])[0]


@pytest.mark.parametrize("round_number", range(5))
def test_one_of_many_gets_the_job(store: CoordinationStore, round_number: int) -> None:
    job = f"j{round_number}"
    store.enqueue([EnqueueRequest(job, 1, QUEUE)])
    replies = all_at_once([reserve_step(store, job, racer, 100) for racer in range(RACERS)])
    assert Counter(replies) == {ReserveReply.RESERVED: 1, ReserveReply.TAKEN: RACERS - 1}


@pytest.mark.parametrize("round_number", range(5))
def test_racing_for_the_last_permits_takes_exactly_those_there_are(
    store: CoordinationStore, data: Data, round_number: int
) -> None:
    jobs = [f"j{number}" for number in range(RACERS)]
    store.enqueue([EnqueueRequest(job, 1, QUEUE) for job in jobs])
    replies = all_at_once([reserve_step(store, job, place, LIMIT) for place, job in enumerate(jobs)])
    assert Counter(replies) == {ReserveReply.RESERVED: LIMIT, ReserveReply.GLOBAL_LIMIT: RACERS - LIMIT}
    assert store.count_permits().total == LIMIT
    data.check_index()


def test_of_many_sweeps_that_enqueue_one_publishes(store: CoordinationStore) -> None:
    replies = all_at_once([lambda: store.enqueue([EnqueueRequest("j1", 1, QUEUE)])[0]] * RACERS)
    assert Counter(replies) == {EnqueueReply.ENQUEUED: 1, EnqueueReply.MARKER_PRESENT: RACERS - 1}


def test_a_regrant_against_a_reserve_for_the_last_permit_lets_one_through(
    store: CoordinationStore, data: Data
) -> None:
    for number in range(10):
        lost = leased(store, f"lost{number}")
        data.raw.delete(*data.keys.all())
        store.enqueue([EnqueueRequest("j1", 1, QUEUE)])
        request = RegrantRequest(
            lost.job_id, 1, lost.attempt_id, "w1", lost.grant_epoch, QUEUE, limits=PermitLimits(1)
        )
        replies = all_at_once(
            [
                reserve_step(store, "j1", 1, 1),
                partial(regrant, store, request),
            ]
        )
        assert replies in (
            [ReserveReply.RESERVED, RegrantReply.GLOBAL_LIMIT],
            [ReserveReply.GLOBAL_LIMIT, RegrantReply.REGRANTED],
        )


def test_a_renewal_against_the_sweep_leaves_it_either_live_or_expired_for_good(
    store: CoordinationStore, data: Data
) -> None:
    for number in range(10):
        renew = leased(store, f"j{number}")
        data.older(2 * store.timing.lease_ms, f"lease/j{number}")
        renewed, lapsed = all_at_once(
            [
                partial(renew_one, store, renew),
                lambda: str(len(store.expire_leases().lapsed)),
            ]
        )
        assert (renewed, lapsed) in ((RenewReply.RENEWED, "0"), (RenewReply.LEASE_EXPIRED, "1"))
        assert store.renew_lease([renew]) == [RenewReply(renewed)]


def test_an_activation_against_the_release_of_its_reservation_is_one_or_the_other(
    store: CoordinationStore,
) -> None:
    for number in range(10):
        job = f"j{number}"
        reserved(store, job, claim="c1")
        activate = ActivateRequest(job, 1, "a1", "w1", "c1")
        release = ReleaseReservationRequest(job, 1, "w1", "c1")
        activated, released = all_at_once(
            [
                partial(activate_one, store, activate),
                partial(release_one, store, release),
            ]
        )
        assert (activated, released) in (
            ("activated", ReleaseReservationReply.NOT_RESERVED),
            ("not_reserved", ReleaseReservationReply.RELEASED),
        )


def reserve_many(url: str, prefix: str, racer: int, jobs: list[str], start: str) -> list[str]:
    """In a process of its own: once told to, try for every job."""
    connection = Connection(url)
    store = CoordinationStore(connection, prefix, Timing(), batch_max=3)
    connection._redis.blpop([start], timeout=10)
    requests = [
        ReserveRequest(job, 1, f"w{racer}", f"c{racer}", QUEUE, limits=PermitLimits(LIMIT)) for job in jobs
    ]
    return [str(reply) for reply in store.reserve(requests)]


def test_processes_that_race_take_no_more_than_the_limit(
    store: CoordinationStore, data: Data, redis_url: str, coordination_prefix: str
) -> None:
    jobs = [f"j{number}" for number in range(20)]
    store.enqueue([EnqueueRequest(job, 1, QUEUE) for job in jobs])
    start = f"{coordination_prefix}start"
    with multiprocessing.get_context("spawn").Pool(3) as processes:
        asked = [(redis_url, coordination_prefix, racer, jobs, start) for racer in range(3)]
        answers = processes.starmap_async(reserve_many, asked)
        data.raw.rpush(start, *range(3))
        won = [reply for replies in answers.get(timeout=60) for reply in replies].count("reserved")
    assert won == store.count_permits([QUEUE]).by_queue[QUEUE] == LIMIT
    data.check_index()
