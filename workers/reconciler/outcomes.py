"""process_outcomes: an outcome that was sent and not processed is processed, by anyone."""

from __future__ import annotations

from typing import Final

from jobs import queries, transitions
from jobs.values import Actor, ActorKind
from workers.reconciler.swept import Run, duty

ACTOR: Final = Actor(ActorKind.DUTY, "process_outcomes")


@duty("process_outcomes")
def process_outcomes(run: Run, *, rows_max: int) -> None:
    """ProcessOutcome of what is pending."""
    pending = queries.outcomes_pending(rows_max=rows_max)
    run.count("seen", len(pending))
    fences = [fact.fence for fact in pending]
    run.act(fences, lambda batch: transitions.process_outcome(batch, actor=ACTOR), "processed")
