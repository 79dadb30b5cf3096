"""How a step is written down, and read again: the journal's rows as values.

A step keeps what its pure function was given besides the rows (`params`, `observed`) and the variables it
changed (`before`, `after`), so that the audit can take the same step again and compare.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final

from jobs.protocol.records import (
    AttemptRecord,
    CoordinationRecord,
    JobRecord,
    JobView,
    LeaseRecord,
    WorkerRecord,
)
from jobs.protocol.states import AttemptState, LeaseState, OutcomeRequest, Phase, StageState, WorkerState

INIT: Final = "Init"
"""The step that accepts a job: the module's initial state, for this job."""

JOB_FIELDS: Final = tuple(field.name for field in fields(JobRecord))
ATTEMPT_FIELDS: Final = tuple(field.name for field in fields(AttemptRecord) if field.name != "token")
_NOTHING_OBSERVED: Final = CoordinationRecord()
_ENUMS: Final[dict[str, Any]] = {
    "phase": Phase,
    "state": AttemptState,
    "stage_state": StageState,
    "pending_outcome": OutcomeRequest,
}

Changes = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """One accepted action on one job, not yet written."""

    action: str
    token: int
    params: Mapping[str, Any]
    observed: Mapping[str, Any]
    before: JobView
    after: JobView

    def changes(self) -> tuple[Changes, Changes]:
        return view_changes(self.before, self.after)


def view_changes(before: JobView, after: JobView) -> tuple[Changes, Changes]:
    """The durable variables that differ, as they were and as they are."""
    was: Changes = {}
    now: Changes = {}
    if before.job is not after.job:
        _differ("job", JOB_FIELDS, before.job, after.job, was, now)
    for attempt in after.attempts:
        known = before.attempt(attempt.token)
        if known is not attempt:
            _differ(f"attempt.{attempt.token}", ATTEMPT_FIELDS, known, attempt, was, now)
    return was, now


def _differ(prefix: str, names: tuple[str, ...], old: Any, new: Any, was: Changes, now: Changes) -> None:
    for name in names:
        value = getattr(new, name)
        if old is None:
            now[f"{prefix}.{name}"] = value
        elif getattr(old, name) != value:
            was[f"{prefix}.{name}"] = getattr(old, name)
            now[f"{prefix}.{name}"] = value


def apply_changes(view: JobView, after: Mapping[str, Any]) -> JobView:
    """The view with these variables set: how the audit goes on after a step that it could not replay."""
    job: Changes = {}
    attempts: dict[int, Changes] = {}
    for key, value in after.items():
        scope, _, name = key.rpartition(".")
        typed = _ENUMS[name](value) if name in _ENUMS else value
        if scope == "job":
            job[name] = typed
        else:
            attempts.setdefault(int(scope.removeprefix("attempt.")), {})[name] = typed
    view = replace(view, job=replace(view.job, **job)) if job else view
    for token, values in sorted(attempts.items()):
        if view.attempt(token) is None:
            view = replace(view, attempts=(*view.attempts, AttemptRecord(token=token, **values)))
        else:
            view = view.with_attempt(token, **values)
    return view


def write_observed(coordination: CoordinationRecord, worker: WorkerRecord | None) -> dict[str, Any]:
    """What was seen outside the job's own rows when the step was decided; only what says something."""
    observed: dict[str, Any] = {}
    if coordination != _NOTHING_OBSERVED:
        facts = asdict(coordination)
        plain = asdict(_NOTHING_OBSERVED)
        observed["coordination"] = {name: value for name, value in facts.items() if value != plain[name]}
    if worker is not None:
        observed["worker"] = {"id": worker.id, "state": worker.state}
    return observed


def read_coordination(observed: Mapping[str, Any]) -> CoordinationRecord:
    facts = dict(observed.get("coordination", {}))
    leases = tuple(
        LeaseRecord(lease["token"], LeaseState(lease["state"]), lease["age"])
        for lease in facts.pop("leases", ())
    )
    return CoordinationRecord(**facts, leases=leases)


def read_worker(observed: Mapping[str, Any]) -> WorkerRecord:
    """The worker that was seen; a store that carried out its request had been reached by it."""
    seen = observed["worker"]
    return WorkerRecord(id=seen["id"], state=WorkerState(seen["state"]))
