"""ReapLostAttempt and ScheduleRetry."""

from __future__ import annotations

from collections.abc import Sequence

from jobs.ids import JobId
from jobs.protocol import Fence, JobView
from jobs.values import SYSTEM, Actor, Answer, Observe


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
    raise NotImplementedError


def schedule_retry(
    job_ids: Sequence[JobId], *, due_only: bool = True, actor: Actor = SYSTEM, skip_locked: bool = True
) -> list[Answer[JobView]]:
    """ScheduleRetry: RetryWait -> Queued for jobs whose retry_at has passed on PostgreSQL's clock."""
    raise NotImplementedError
