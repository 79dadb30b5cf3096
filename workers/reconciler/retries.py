"""schedule_retries: backoff is over, the job is Queued again, and offered in the same run."""

from __future__ import annotations

from typing import Final

from jobs import queries, transitions
from jobs.ids import JobId
from jobs.values import Actor, ActorKind
from workers.reconciler.dispatch import offer
from workers.reconciler.swept import Run, duty

ACTOR: Final = Actor(ActorKind.DUTY, "schedule_retries")
PAGES_MAX: Final = 20


@duty("schedule_retries")
def schedule_retries(run: Run, *, rows_max: int) -> None:
    """ScheduleRetry for what is due by PostgreSQL's clock."""
    tried: list[JobId] = []
    for _ in range(PAGES_MAX):
        due = queries.due_retries(rows_max=rows_max, tried=tried)
        run.count("seen", len(due))
        tried += due
        queued = run.act(due, lambda batch: transitions.schedule_retry(batch, actor=ACTOR), "scheduled")
        if queued:
            offer(run, queued)
        if len(due) < rows_max:
            return
