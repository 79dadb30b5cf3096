"""ReapLostAttempt and ScheduleRetry."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from jobs import protocol, store
from jobs.held import HeldJob
from jobs.ids import JobId
from jobs.policy import clean_text, losses_with, retry_at
from jobs.protocol import Accepted, Fence, JobView, Limits
from jobs.protocol.states import AttemptState, Phase
from jobs.store import Batch
from jobs.transitions.execution import end_attempt
from jobs.values import SYSTEM, Actor, Answer, AttemptEnd, Declined, Observe, Unasked


def reap_lost_attempt(
    fences: Sequence[Fence],
    *,
    observe: Observe,
    why: str = "its lease is not live",
    actor: Actor = SYSTEM,
    skip_locked: bool = True,
) -> list[Answer[JobView]]:
    """ReapLostAttempt: revoke the authority of attempts whose lease `observe` does not show as live.

    The loss that reaches the job's max_losses in a row, none of them with checkpoint progress, ends the job.
    """
    chances = [random.random() for _ in fences]

    def work(batch: Batch) -> list[Answer[JobView]]:
        return [_reap(batch, *given, why) for given in zip(fences, chances, strict=True)]

    return store.act(
        store.distinct(fences), work, fences=fences, observe=observe, actor=actor, skip_locked=skip_locked
    )


def _reap(batch: Batch, fence: Fence, chance: float, why: str) -> Answer[JobView]:
    found = batch.find_attempt(fence)
    if isinstance(found, Declined):
        return found
    job, attempt = found
    losses = losses_with(job, attempt.token)
    limits = job.limits(attempt.token)
    if losses >= job.row.max_losses:
        # Lost too often without getting anywhere: no more attempts, decided by the same guard as any spent
        # budget.
        limits = replace(limits, max_attempts=min(limits.max_attempts, job.job.current_token))
    decision = job.take(
        "ReapLostAttempt",
        protocol.reap_lost_attempt(job.view, attempt.token, limits),
        token=attempt.token,
        max_attempts=limits.max_attempts,
    )
    if isinstance(decision, Accepted):
        _record_loss(job, attempt.token, losses, limits, chance, why)
    return decision


def _record_loss(job: HeldJob, token: int, losses: int, limits: Limits, chance: float, why: str) -> None:
    story = f"attempt {token} was lost: {why}"
    if job.job.phase is Phase.FAILED:
        spent = (
            f"{losses} losses in a row" if losses >= job.row.max_losses else f"{limits.max_attempts} attempts"
        )
        story += f"; {spent} is the most this job bears"
    job.set(losses_in_row=losses, max_attempts=limits.max_attempts, why=clean_text(story))
    if job.job.phase is Phase.RETRY_WAIT:
        job.set(retry_at=retry_at(job, losses, chance))
    attempt = job.attempt(token)
    never_ran = attempt is not None and attempt.state is AttemptState.STOPPED
    end_attempt(job, token, AttemptEnd.LOST, why, confirmed=never_ran)


def schedule_retry(
    job_ids: Sequence[JobId], *, due_only: bool = True, actor: Actor = SYSTEM, skip_locked: bool = True
) -> list[Answer[JobView]]:
    """ScheduleRetry: RetryWait -> Queued for jobs whose retry_at has passed on PostgreSQL's clock."""

    def one(batch: Batch, job_id: JobId) -> Answer[JobView]:
        job = batch.find(job_id)
        if isinstance(job, Declined):
            return job
        due_at = job.fact("retry_at")
        if due_only and due_at is not None and due_at > job.now and job.job.phase is Phase.RETRY_WAIT:
            return Declined(Unasked.NOT_DUE)
        decision = job.take("ScheduleRetry", protocol.schedule_retry(job.view))
        if decision.accepted:
            job.set(retry_at=None)
        return decision

    def work(batch: Batch) -> list[Answer[JobView]]:
        return [one(batch, job_id) for job_id in job_ids]

    return store.act(job_ids, work, actor=actor, skip_locked=skip_locked)
