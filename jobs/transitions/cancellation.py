"""RequestCancel and FinalizeCancel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobs import protocol, store
from jobs.ids import JobId
from jobs.policy import clean_text
from jobs.protocol import JobView
from jobs.protocol.states import AttemptState
from jobs.store import Batch
from jobs.transitions.execution import end_attempt
from jobs.values import SYSTEM, Actor, Answer, AttemptEnd, Declined


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """Somebody wants a job cancelled, and says why."""

    job_id: JobId
    reason: str = ""


def request_cancel(requests: Sequence[CancelRequest], *, actor: Actor) -> list[Answer[JobView]]:
    """RequestCancel: a waiting job is Cancelled at once, a running one is Cancelling."""

    def one(batch: Batch, request: CancelRequest) -> Answer[JobView]:
        job = batch.find(request.job_id)
        if isinstance(job, Declined):
            return job
        decision = job.take("RequestCancel", protocol.request_cancel(job.view), token=job.job.authority)
        if decision.accepted:
            job.set(cancel_reason=clean_text(request.reason), why="")
        return decision

    def work(batch: Batch) -> list[Answer[JobView]]:
        return [one(batch, request) for request in requests]

    return store.act([request.job_id for request in requests], work, actor=actor)


def finalize_cancel(
    job_ids: Sequence[JobId], *, actor: Actor = SYSTEM, skip_locked: bool = True
) -> list[Answer[JobView]]:
    """FinalizeCancel: forbid publication for good. It does not claim that the process has stopped."""

    def one(batch: Batch, job_id: JobId) -> Answer[JobView]:
        job = batch.find(job_id)
        if isinstance(job, Declined):
            return job
        token = job.job.authority
        decision = job.take("FinalizeCancel", protocol.finalize_cancel(job.view), token=token)
        if decision.accepted:
            after = job.attempt(token)
            never_ran = after is not None and after.state is AttemptState.STOPPED
            end_attempt(job, token, AttemptEnd.CANCELLED, job.row.cancel_reason, confirmed=never_ran)
        return decision

    def work(batch: Batch) -> list[Answer[JobView]]:
        return [one(batch, job_id) for job_id in job_ids]

    return store.act(job_ids, work, actor=actor, skip_locked=skip_locked)
