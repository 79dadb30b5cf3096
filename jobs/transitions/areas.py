"""Areas at the target that no checkpoint ever recorded: what an attempt left that was lost before its first
one.

The module's stage is what the target holds; the durable row knows of it from the first checkpoint on. An
attempt killed before that leaves files under its own area with StageNone in its row, which CleanupStage has
nothing to say about. The area's name is in the row all the same, so it is deleted under the same
conditions, and that it was is remembered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from django.db import connection

from jobs import store
from jobs.ids import AttemptId
from jobs.models import Attempt
from jobs.protocol import Accepted, Fence, JobView, Refused
from jobs.protocol.decision import Refusal
from jobs.protocol.states import AttemptState, StageState, WorkerState
from jobs.queries import FIRST_ID, AttemptFact
from jobs.store import Batch
from jobs.transitions.cleanup import StageToClean
from jobs.values import Answer, Declined

_UNRECORDED: Final = f"""
    SELECT attempt.id, attempt.job_id, attempt.token
    FROM jobs_attempt AS attempt
    JOIN jobs_job AS job ON job.id = attempt.job_id
    JOIN jobs_workerincarnation AS worker ON worker.id = attempt.worker_id
    WHERE attempt.stage_state = '{StageState.NONE}' AND attempt.activated_at IS NOT NULL
      AND attempt.stage_cleaned_at IS NULL AND attempt.id > %s
      AND attempt.token NOT IN (job.authority, job.committed)
      AND (attempt.state = '{AttemptState.STOPPED}' OR worker.state = '{WorkerState.DOWN}')
    ORDER BY attempt.id LIMIT %s
"""  # noqa: S608 (names and values of ours)


def unrecorded_areas(*, rows_max: int, after: AttemptId | None = None) -> list[AttemptFact]:
    """Attempts that ran, are over, and of whose area nothing is recorded: neither staged nor deleted."""
    with connection.cursor() as cursor:
        cursor.execute(_UNRECORDED, [after or FIRST_ID, rows_max])
        return [
            AttemptFact(attempt_id, Fence(job_id, token)) for attempt_id, job_id, token in cursor.fetchall()
        ]


_OVER: Final = f"""
    SELECT attempt.id FROM jobs_attempt AS attempt
    JOIN jobs_job AS job ON job.id = attempt.job_id
    JOIN jobs_workerincarnation AS worker ON worker.id = attempt.worker_id
    WHERE attempt.job_id = %s AND attempt.token = %s AND attempt.activated_at IS NOT NULL
      AND attempt.stage_state IN ('{StageState.NONE}', '{StageState.CLEANED}')
      AND attempt.token NOT IN (job.authority, job.committed)
      AND (attempt.state = '{AttemptState.STOPPED}' OR worker.state = '{WorkerState.DOWN}')
"""  # noqa: S608 (names and values of ours)


def emptied_area(fence: Fence) -> AttemptFact | None:
    """The attempt, if it is over and its stage counts as empty or deleted. It stays so: no token comes back.

    A zombie that was declared Down before it had made its area makes it when it wakes, after it was cleaned.
    """
    with connection.cursor() as cursor:
        cursor.execute(_OVER, [store.job_of(fence), fence.token])
        row = cursor.fetchone()
    return None if row is None else AttemptFact(row[0], fence)


def area_of(fact: AttemptFact) -> StageToClean | None:
    """What a handler needs to delete that area."""
    attempt = Attempt.objects.select_related("job").filter(id=fact.attempt_id).first()
    if attempt is None:
        return None
    return StageToClean(fact.fence, fact.attempt_id, attempt.kind, attempt.job.spec, attempt.stage_location)


def record_area_removed(fences: Sequence[Fence]) -> list[Answer[JobView]]:
    """The area has been deleted; decided again under the lock. No protocol variable changes."""

    def one(batch: Batch, fence: Fence) -> Answer[JobView]:
        found = batch.find_attempt(fence)
        if isinstance(found, Declined):
            return found
        job, attempt = found
        if attempt.stage_state is not StageState.NONE:
            return Refused(Refusal.NOTHING_STAGED)
        if job.view.current_authority(fence.token):
            return Refused(Refusal.CURRENT_AUTHORITY)
        job.set_attempt(fence.token, stage_cleaned_at=job.now)
        return Accepted(job.view)

    def work(batch: Batch) -> list[Answer[JobView]]:
        return [one(batch, fence) for fence in fences]

    return store.act(store.distinct(fences), work, fences=fences, skip_locked=True)
