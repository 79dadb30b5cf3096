"""The same transitions from many connections at once: the outcome is one of the serial ones, and exactly one
wins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from jobs import transitions
from jobs.errors import ProtocolViolation
from jobs.ids import JobId, new_id
from jobs.models import Attempt, CommittedResult
from jobs.protocol import Refusal
from jobs.protocol.states import AttemptState, Phase
from jobs.transitions import CancelRequest, IncarnationFacts
from jobs.values import SYSTEM, AttemptEnd, Unasked
from tests.durable import driver

pytestmark = pytest.mark.django_db(transaction=True)

Race = Callable[[Sequence[Callable[[], Any]]], list[Any]]
ROUNDS = 20


def twenty_times(test: Callable[[Race, int], None]) -> Callable[[Race], None]:
    """A race that is won by the right one once may have been lucky."""

    def rounds(race: Race) -> None:
        for round_number in range(ROUNDS):
            test(race, round_number)

    rounds.__name__, rounds.__doc__ = test.__name__, test.__doc__
    return rounds


def cancel(job_id: JobId) -> Any:
    return transitions.request_cancel([CancelRequest(job_id)], actor=SYSTEM)[0]


def finalize(job_id: JobId) -> Any:
    return transitions.finalize_cancel([job_id], skip_locked=False)[0]


def reap(fence: Any) -> Any:
    return transitions.reap_lost_attempt([fence], observe=driver.NOTHING, skip_locked=False)[0]


def tokens(job_id: JobId) -> list[int]:
    return list(Attempt.objects.filter(job_id=job_id).order_by("token").values_list("token", flat=True))


@twenty_times
def test_ten_workers_authorise_one_job_and_one_gets_it(race: Race, round_number: int) -> None:
    job_id, workers = driver.accept(), [driver.start_worker() for _ in range(10)]
    requests = [driver.request_for(job_id, worker) for worker in workers]

    def authorize(place: int) -> Any:
        # Each believes that the reservation is its own: the token alone decides.
        observe = driver.reserved_by(workers[place])
        return transitions.authorize_attempt([requests[place]], observe=observe, locate=driver.locate)[0]

    answers = race([partial(authorize, place) for place in range(10)])
    won = [answer for answer in answers if answer.accepted]
    assert len(won) == 1
    assert {answer.reason for answer in answers if answer.refused} == {Unasked.UNEXPECTED_TOKEN}
    assert tokens(job_id) == [1]
    assert driver.attempt(won[0].value.fence).worker_id == won[0].value.worker


@twenty_times
def test_ten_children_of_one_incarnation_authorise_one_job_and_one_gets_it(
    race: Race, round_number: int
) -> None:
    job_id, worker = driver.accept(), driver.start_worker()
    request = driver.request_for(job_id, worker)

    def authorize() -> Any:
        observe = driver.reserved_by(worker)
        return transitions.authorize_attempt([request], observe=observe, locate=driver.locate)[0]

    answers = race([authorize] * 10)
    assert sum(answer.accepted for answer in answers) == 1
    assert tokens(job_id) == [1]


@twenty_times
def test_success_against_cancel_publishes_or_cancels_and_never_both(race: Race, round_number: int) -> None:
    job_id, worker = driver.accept(), driver.start_worker()
    fence = driver.run(job_id, worker)
    settled, cancelled = race(
        [lambda: driver.settle(driver.success(fence)), lambda: cancel(job_id)][
            :: 1 if round_number % 2 else -1
        ]
    )[:: 1 if round_number % 2 else -1]
    job = driver.job(job_id)
    if cancelled.accepted:
        assert (settled.value.end, job.phase, job.committed) == (AttemptEnd.REJECTED, Phase.CANCELLING, 0)
        assert not CommittedResult.objects.filter(job_id=job_id).exists()
    else:
        assert cancelled.reason == Refusal.NOT_CANCELLABLE
        assert (settled.value.end, job.phase, job.committed) == (AttemptEnd.COMMITTED, Phase.SUCCEEDED, 1)


@twenty_times
def test_success_against_reap_publishes_or_is_rejected(race: Race, round_number: int) -> None:
    job_id, worker = driver.accept(), driver.start_worker()
    fence = driver.run(job_id, worker)
    settled, reaped = race([lambda: driver.settle(driver.success(fence)), lambda: reap(fence)])
    job = driver.job(job_id)
    if reaped.accepted:
        assert (settled.value.end, job.phase, job.committed) == (AttemptEnd.REJECTED, Phase.RETRY_WAIT, 0)
    else:
        assert reaped.reason == Refusal.NOT_CURRENT_AUTHORITY
        assert (settled.value.end, job.phase) == (AttemptEnd.COMMITTED, Phase.SUCCEEDED)


@twenty_times
def test_success_against_its_duplicates_publishes_once(race: Race, round_number: int) -> None:
    job_id, worker = driver.accept(), driver.start_worker()
    fence = driver.run(job_id, worker)
    answers = race([lambda: driver.settle(driver.success(fence))] * 4)
    assert [answer.value.end for answer in answers] == [AttemptEnd.COMMITTED] * 4
    assert sorted(answer.value.repeated for answer in answers) == [False, True, True, True]
    assert driver.actions(job_id).count("AcceptSuccess") == 1


@twenty_times
def test_success_against_failure_of_the_same_attempt_is_one_of_them(race: Race, round_number: int) -> None:
    job_id, worker = driver.accept(), driver.start_worker()
    fence = driver.run(job_id, worker)
    succeeded, failed = race(
        [lambda: driver.settle(driver.success(fence)), lambda: driver.settle(driver.failure(fence))]
    )
    assert [succeeded.accepted, failed.accepted].count(True) == 1
    assert driver.job(job_id).phase == (Phase.SUCCEEDED if succeeded.accepted else Phase.RETRY_WAIT)


@twenty_times
def test_finalising_a_cancel_against_settling_never_publishes(race: Race, round_number: int) -> None:
    job_id, worker = driver.accept(), driver.start_worker()
    fence = driver.run(job_id, worker)
    assert cancel(job_id).accepted
    settled, final = race([lambda: driver.settle(driver.success(fence)), lambda: finalize(job_id)])
    assert final.accepted
    assert settled.value.end == AttemptEnd.REJECTED
    job = driver.job(job_id)
    assert (job.phase, job.committed, job.authority) == (Phase.CANCELLED, 0, 0)
    assert driver.attempt(fence).state == AttemptState.STOPPED


@twenty_times
def test_four_schedulers_schedule_a_retry_once(race: Race, round_number: int) -> None:
    job_id, worker = driver.accept(backoff_base_s=0), driver.start_worker()
    driver.settle(driver.failure(driver.run(job_id, worker)))
    answers = race([lambda: transitions.schedule_retry([job_id])[0]] * 4)
    assert sum(answer.accepted for answer in answers) == 1
    allowed = {Refusal.NOT_RETRY_WAIT, Unasked.LOCKED_BY_ANOTHER}
    assert {answer.reason for answer in answers if answer.refused} <= allowed
    assert driver.actions(job_id).count("ScheduleRetry") == 1


@twenty_times
def test_a_worker_that_is_declared_down_gets_no_attempt_after_it(race: Race, round_number: int) -> None:
    job_id, worker = driver.accept(), driver.start_worker()
    request = driver.request_for(job_id, worker)
    authorized, down = race(
        [
            lambda: transitions.authorize_attempt(
                [request], observe=driver.reserved_by(worker), locate=driver.locate
            )[0],
            lambda: transitions.declare_down([worker], why="race")[0],
        ]
    )
    assert down.accepted
    if authorized.accepted:
        assert driver.attempt(authorized.value.fence).state == AttemptState.STOPPED
    else:
        assert authorized.reason == Refusal.WORKER_NOT_UP
        assert tokens(job_id) == []


@twenty_times
def test_one_incarnation_id_starts_once(race: Race, round_number: int) -> None:
    facts, id_ = IncarnationFacts("node", 1, "compute", (), (), 1), new_id()

    def start() -> bool:
        try:
            transitions.start_incarnation(facts, incarnation=id_)
        except ProtocolViolation:
            return False
        return True

    assert sorted(race([start] * 3)) == [False, False, True]


@twenty_times
def test_batches_that_overlap_in_any_order_do_not_deadlock(race: Race, round_number: int) -> None:
    worker = driver.start_worker()
    jobs = [driver.accept() for _ in range(6)]
    fences = [driver.run(job_id, worker) for job_id in jobs]
    settle = [driver.success(fence) for fence in fences]
    cancels = [CancelRequest(job_id) for job_id in reversed(jobs)]
    settled, cancelled, reaped = race(
        [
            lambda: transitions.settle(settle),
            lambda: transitions.request_cancel(cancels, actor=SYSTEM),
            lambda: transitions.reap_lost_attempt(fences[::-1], observe=driver.NOTHING, skip_locked=False),
        ]
    )
    for place, job_id in enumerate(jobs):
        won = [settled[place].value.end == AttemptEnd.COMMITTED, reaped[-1 - place].accepted]
        phase = driver.job(job_id).phase
        assert sum(won) <= 1
        assert (phase == Phase.SUCCEEDED) == won[0]
        assert cancelled[-1 - place].accepted == (phase in (Phase.CANCELLING, Phase.CANCELLED))
