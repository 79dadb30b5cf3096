"""Writes what was decided: attempts, jobs, journal; one statement each, every row conditioned on what was
held.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from jobs import sql
from jobs.errors import ProtocolViolation
from jobs.held import HeldJob
from jobs.journal import ATTEMPT_FIELDS, JOB_FIELDS, Step
from jobs.models import Attempt, Job, ProtocolEvent
from jobs.protocol import AttemptRecord
from jobs.protocol.invariants import broken_durably
from jobs.sql import RowChange
from jobs.values import Actor, ActorKind

EVENT_COLUMNS: Final = (
    *("at", "action", "job_id", "token", "actor_kind", "actor_id", "incarnation"),
    *("params", "observed", "before", "after"),
)


def write(jobs: Sequence[HeldJob], actor: Actor | None) -> None:
    """Write the difference between what was locked and what was decided."""
    changed = [job for job in jobs if job.steps or job.facts or job.attempt_facts]
    if not changed:
        return
    _assert_invariants(changed)
    _insert_attempts(changed)
    _update_attempts(changed)
    _update_jobs(changed)
    append_events([event_row(job, step, actor) for job in changed for step in job.steps])


def _assert_invariants(jobs: Sequence[HeldJob]) -> None:
    for job in jobs:
        assert_invariants(job)


def assert_invariants(job: HeldJob) -> None:
    """The module's invariants, asserted on each view that is about to be written."""
    broken = broken_durably(job.view, job.limits(job.job.current_token))
    if broken:
        raise ProtocolViolation(f"job {job.row.id} would break {', '.join(broken)}: {job.view}")


def _insert_attempts(jobs: Sequence[HeldJob]) -> None:
    names: tuple[str, ...] = ()
    new_rows: list[tuple[Any, ...]] = []
    for job in jobs:
        for record in job.view.attempts:
            if job.locked.attempt(record.token) is None:
                facts = job.attempt_facts[record.token]
                names = ("job", "token", *_without_worker(ATTEMPT_FIELDS), *facts)
                values = [getattr(record, name) for name in _without_worker(ATTEMPT_FIELDS)]
                new_rows.append((job.row.id, record.token, *values, *facts.values()))
    sql.insert_rows(Attempt, names, new_rows)


def _without_worker(names: Sequence[str]) -> list[str]:
    return [name for name in names if name != "worker"]


def _update_attempts(jobs: Sequence[HeldJob]) -> None:
    changes: list[RowChange] = []
    for job in jobs:
        for token, row in job.rows.items():
            if values := _attempt_changes(job, token):
                held = {"state": row.state, "stage_state": row.stage_state}
                changes.append(RowChange(row.id, held, values))
    _all_found(Attempt, changes)


def _attempt_changes(job: HeldJob, token: int) -> dict[str, Any]:
    before, after = job.locked.attempt(token), job.the_attempt(token)
    changes = _record_changes(before, after, _without_worker(ATTEMPT_FIELDS))
    return changes | job.attempt_facts.get(token, {})


def _record_changes(before: Any, after: Any, names: Sequence[str]) -> dict[str, Any]:
    if before is after:
        return {}
    return {name: getattr(after, name) for name in names if getattr(after, name) != getattr(before, name)}


def _update_jobs(jobs: Sequence[HeldJob]) -> None:
    changes: list[RowChange] = []
    for job in jobs:
        values = _record_changes(job.locked.job, job.view.job, JOB_FIELDS) | job.facts
        if not values:
            continue
        values["updated_at"] = job.now
        if job.view.job.terminal and not job.locked.job.terminal:
            values["finished_at"] = job.now
        held = {name: getattr(job.locked.job, name) for name in ("phase", "current_token", "authority")}
        changes.append(RowChange(job.row.id, held, values))
    _all_found(Job, changes)


def _all_found(model: Any, changes: Sequence[RowChange]) -> None:
    found = sql.update_rows(model, changes)
    if found != len(changes):
        raise ProtocolViolation(
            f"{len(changes) - found} of {len(changes)} {model.__name__} rows changed under their lock"
        )


def event_row(job: HeldJob, step: Step, actor: Actor | None) -> tuple[Any, ...]:
    """A step as a row of the journal. Without an actor it was the incarnation that runs the attempt."""
    before, after = step.changes()
    worker = _worker(job, step)
    by = actor or Actor(ActorKind.INCARNATION, "" if worker is None else worker)
    incarnation = by.id if by.kind is ActorKind.INCARNATION else worker
    row = journal_row(job.now, step.action, job.row.id, step.token, by, incarnation)
    return (*row, dict(step.params), dict(step.observed), before, after)


def _worker(job: HeldJob, step: Step) -> str | None:
    attempt: AttemptRecord | None = job.view.attempt(step.token) if step.token else None
    return None if attempt is None else attempt.worker


def journal_row(
    at: datetime, action: str, job_id: UUID | None, token: int, actor: Actor, incarnation: str | None
) -> tuple[Any, ...]:
    return (at, action, job_id, token, actor.kind, actor.id[:255], incarnation or None)


def append_events(events: Sequence[tuple[Any, ...]]) -> None:
    """Append to the journal. The only place that does."""
    sql.insert_rows(ProtocolEvent, EVENT_COLUMNS, events)
