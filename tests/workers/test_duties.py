"""Each duty on real stores: it does what is due, once, and nothing else; it survives the loss of a store
and a bad row.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from django.db import connection, connections, transaction

from jobs import transitions
from jobs.ids import IncarnationId, JobId
from jobs.models import ProtocolEvent, WorkerIncarnation
from jobs.protocol import Accepted
from jobs.protocol.states import AttemptState, Phase, WorkerState
from jobs.store import job_of
from jobs.transitions import CancelRequest, StopReport
from jobs.values import SYSTEM, Answer
from tests.coordination.support import Data, marker_fact, reservation_fact
from tests.durable import driver
from tests.workers.ground import LONG_MS, data, ground, leased, old
from workers import reconciler
from workers.coordination import coordination
from workers.reconciler.swept import Run

__all__ = ["data", "ground", "old"]
EXPECTED_UNAVAILABLE = dict.fromkeys(
    ("reaper", "coordination", "dispatch"), ("CoordinationUnavailable",)
) | dict.fromkeys(("incarnations", "outcomes", "cancels", "retries", "stages"), ("",))
"""Which duties cannot do without Redis when nothing but a running attempt and a waiting job is there."""


def test_a_queued_job_is_offered_once_and_again_only_when_nobody_took_it(data: Data) -> None:
    job_id = driver.accept()
    data.raw.delete(data.key("markers"))  # what the submission's fast path had set
    first = reconciler.project_dispatch()
    assert [(offer.job_id, offer.expected_token) for offer in first.offers] == [(job_id, 1)]
    assert reconciler.project_dispatch().offers == ()
    old = data.now_ms() - 60_000
    data.write("markers", str(job_id), marker_fact(data, set_ms=old, offered_ms=old))
    again = reconciler.project_dispatch()
    assert [offer.job_id for offer in again.offers] == [job_id]


def test_a_long_queue_is_gone_through_in_pages(data: Data) -> None:
    wanted = {driver.accept() for _ in range(23)}
    data.raw.delete(data.key("markers"))
    swept = reconciler.project_dispatch(rows_max=5)
    assert {offer.job_id for offer in swept.offers} == wanted


def test_a_lost_attempt_is_reaped_and_a_live_one_is_not(old: Data) -> None:
    worker = driver.start_worker()
    lost, alive = (driver.run(driver.accept(), worker) for _ in range(2))
    leased(old, alive, worker)
    swept = reconciler.reap_lost_attempts()
    assert swept.counts["reaped"] == 1
    assert driver.job(job_of(lost)).phase == Phase.RETRY_WAIT
    assert driver.job(job_of(alive)).authority == 1


def test_a_lapsed_lease_is_expired_before_its_attempt_is_reaped(old: Data) -> None:
    worker = driver.start_worker()
    fence = driver.run(driver.accept(), worker)
    leased(old, fence, worker)
    old.older(LONG_MS)
    swept = reconciler.reap_lost_attempts()
    assert (swept.counts["leases_expired"], swept.counts["reaped"]) == (1, 1)


def test_an_attempt_that_is_only_reserved_is_not_reaped(old: Data) -> None:
    worker = driver.start_worker()
    grant = driver.authorize(driver.accept(), worker)
    fact = reservation_fact(old, coordination().timing) | {"incarnation": str(worker)}
    old.write("permits", f"reservation/{grant.fence.job_id}", fact)
    old.older(0)
    assert "reaped" not in reconciler.reap_lost_attempts().counts
    old.older(LONG_MS)
    assert reconciler.reap_lost_attempts().counts["reaped"] == 1


def test_right_after_a_wipe_nobody_is_reaped(data: Data) -> None:
    fence = driver.run(driver.accept(), driver.start_worker())
    swept = reconciler.reap_lost_attempts()
    assert swept.counts == {"epoch_too_young": 1, "leases_expired": 0, "reservations_expired": 0}
    assert driver.job(job_of(fence)).authority == 1


def test_an_outage_of_redis_kills_nobody_and_is_reported(settings: Any) -> None:
    fence = driver.run(driver.accept(), driver.start_worker())
    driver.accept()
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    coordination.cache_clear()
    for name, duty in reconciler.DUTIES.items():
        assert duty().unavailable in EXPECTED_UNAVAILABLE[name], name
    assert driver.job(job_of(fence)).authority == 1


def test_two_reapers_at_once_reap_each_loss_once(old: Data) -> None:
    worker = driver.start_worker()
    fences = [driver.run(driver.accept(), worker) for _ in range(20)]
    barrier = threading.Barrier(3)

    def reap() -> None:
        barrier.wait()
        reconciler.reap_lost_attempts()
        connections.close_all()

    threads = [threading.Thread(target=reap) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reaped = ProtocolEvent.objects.filter(action="ReapLostAttempt")
    assert sorted(map(str, reaped.values_list("job_id", flat=True))) == sorted(
        str(fence.job_id) for fence in fences
    )


def test_a_due_retry_is_queued_and_offered_in_one_run(old: Data) -> None:
    fence = driver.run(driver.accept(backoff_base_s=0), driver.start_worker())
    driver.settle(driver.failure(fence))
    swept = reconciler.schedule_retries()
    assert swept.counts["scheduled"] == 1
    assert [(offer.job_id, offer.expected_token) for offer in swept.offers] == [(fence.job_id, 2)]


def cancel(job_id: JobId) -> None:
    transitions.request_cancel([CancelRequest(job_id)], actor=SYSTEM)


def test_a_cancel_is_noticed_first_and_final_once_the_attempt_has_stopped(old: Data) -> None:
    worker = driver.start_worker()
    fence = driver.run(driver.accept(), worker)
    leased(old, fence, worker)
    cancel(job_of(fence))
    swept = reconciler.finalize_cancels()
    assert swept.counts == {"seen": 1, "published": 1}
    transitions.cooperative_stop([StopReport(fence, cancel_notice=True)])
    assert reconciler.finalize_cancels().counts["finalized"] == 1
    assert driver.job(job_of(fence)).phase == Phase.CANCELLED


def test_a_cancel_is_final_when_the_lease_is_gone_or_the_grace_has_passed(old: Data, settings: Any) -> None:
    worker = driver.start_worker()
    gone, stubborn = (driver.run(driver.accept(), worker) for _ in range(2))
    leased(old, stubborn, worker)
    cancel(job_of(gone))
    cancel(job_of(stubborn))
    assert reconciler.finalize_cancels().counts["finalized"] == 1
    assert driver.job(job_of(gone)).phase == Phase.CANCELLED
    settings.REMORA_STOP_GRACE_S = 0
    assert reconciler.finalize_cancels().counts["finalized"] == 1
    assert driver.attempt(stubborn).state == AttemptState.EXECUTING


def test_an_absent_worker_is_declared_down_unless_it_holds_a_permit(old: Data, settings: Any) -> None:
    idle, busy, young = (driver.start_worker() for _ in range(3))
    make_older(idle, busy)
    fence = driver.run(driver.accept(), busy)
    leased(old, fence, busy)
    coordination().renew_presence([idle, busy, young])
    now = old.now_ms()
    for worker in (idle, busy):
        old.write("presence", str(worker), str(now - LONG_MS))
    assert reconciler.watch_incarnations().counts["grace"] == 1
    old.write("presence", "@watch", old.read("presence", "@watch") | {"grace_until_ms": 0})
    reconciler.watch_incarnations()
    assert state(idle) == WorkerState.DOWN
    assert state(busy) == state(young) == WorkerState.UP


def make_older(*workers: IncarnationId) -> None:
    """Rewrite history, as only a superuser who turns the rules off can."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(
            "UPDATE jobs_workerincarnation SET started_at = started_at - interval '1 day' WHERE id = ANY(%s)",
            [list(workers)],
        )


def state(worker: IncarnationId) -> str:
    return str(WorkerIncarnation.objects.get(id=worker).state)


def test_a_row_that_raises_is_set_aside_and_the_others_are_done() -> None:
    def act(rows: Sequence[int]) -> list[Answer[Any]]:
        if 3 in rows:
            raise ValueError("this row is bad")
        return [Accepted(row) for row in rows]

    run = Run("a duty", dry_run=False)
    assert run.act([1, 2, 3, 4], act, "done") == [1, 2, 4]
    swept = run.swept()
    assert swept.counts == {"done": 3}
    assert swept.set_aside == ("3: ValueError",)
    assert replace(swept, offers=()).as_dict()["set_aside"] == ["3: ValueError"]


def test_a_dead_redis_fails_no_submission(settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    coordination.cache_clear()
    job_id = driver.accept()
    assert driver.job(job_id).dispatch_needed
