"""Situations to be shown: durable facts by the durable functions, hints by the real store."""

from __future__ import annotations

from jobs import transitions
from jobs.ids import IncarnationId, JobId, new_id
from jobs.protocol import Fence
from jobs.transitions import IncarnationFacts
from tests.durable import driver
from workers.coordination import coordination
from workers.coordination.requests import (
    ActivateRequest,
    EnqueueRequest,
    ReportRequest,
    ReserveRequest,
)


def serve(celery_queue: str) -> IncarnationId:
    """A worker that is up and takes from that queue."""
    facts = IncarnationFacts("node-1", 4711, "compute", (celery_queue,), (driver.KIND,), concurrency=4)
    return transitions.start_incarnation(facts)


def offer(job_id: JobId, token: int = 1) -> None:
    coordination().enqueue([EnqueueRequest(job_id, token, "default")])


def run_under_lease(job_id: JobId) -> Fence:
    """An attempt that executes, with a live lease in Redis."""
    worker, claim = serve("jobs.default"), new_id()
    store = coordination()
    offer(job_id)
    (reserved,) = store.reserve([ReserveRequest(job_id, 1, worker, claim, "default")])
    assert reserved.granted
    grant = driver.authorize(job_id, worker)
    attempt = driver.attempt(grant.fence)
    (granted,) = store.activate_attempt([ActivateRequest(job_id, 1, attempt.id, worker, claim)])
    assert granted.reply.granted
    (answer,) = transitions.record_activated([grant.fence])
    assert answer.accepted
    return grant.fence


def report(fence: Fence, progress: int, total: int | None, phase: str) -> None:
    attempt = driver.attempt(fence)
    coordination().report_progress(
        [ReportRequest(attempt.job_id, fence.token, attempt.id, progress, total, phase)]
    )
