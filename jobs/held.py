"""One job as the store holds it between lock and write: the row as locked, the view as decided so far, the
steps taken.

Nothing here touches the database. Several requests for one job in one batch see each other's effect, because
each is decided on the view that the last one left.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from jobs.errors import ProtocolViolation
from jobs.ids import AttemptId, IncarnationId, JobId
from jobs.journal import Step, write_observed
from jobs.protocol import (
    UNBOUNDED,
    Accepted,
    AttemptRecord,
    Decision,
    Fence,
    JobRecord,
    JobView,
    Limits,
    WorkerRecord,
)
from jobs.protocol.records import CoordinationRecord


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job's row as locked, without its bodies (`spec`, `checkpoint_proof`) unless they were asked for."""

    id: JobId
    kind: str
    queue: str
    priority: int
    concurrency_key: str
    spec_digest: str
    phase: str
    cancel_requested: bool
    current_token: int
    authority: int
    dispatch_needed: bool
    committed: int
    checkpoint: int
    checkpoint_valid: bool
    checkpoint_token: int
    checkpoint_base: int
    checkpoint_at: datetime | None
    max_attempts: int
    max_failures: int
    max_losses: int
    failures: int
    losses_in_row: int
    backoff_base_s: float
    backoff_cap_s: float
    retry_at: datetime | None
    cancel_reason: str
    why: str
    updated_at: datetime
    finished_at: datetime | None
    spec: Any = None
    checkpoint_proof: Any = None


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """An attempt's row under its job's lock, and the state of its incarnation."""

    id: AttemptId
    job_id: JobId
    token: int
    worker_id: IncarnationId
    state: str
    progress: int
    initial_progress: int
    resumed_from_checkpoint: bool
    stage_state: str
    pending_outcome: str
    progress_max: int | None
    progress_base: int
    resumed_from: int
    stage_location: str
    kind: str
    spec_digest: str
    bytes_sent: int
    outcome: str
    why: str
    activated_at: datetime | None
    ended_at: datetime | None
    stop_confirmed_at: datetime | None
    stage_cleaned_at: datetime | None
    worker: WorkerRecord


@dataclass(slots=True)
class HeldJob:
    """A locked job. `take` records a step that the protocol accepted; `set` and `set_attempt` change what is
    policy.
    """

    row: JobRow
    locked: JobView
    view: JobView
    rows: dict[int, AttemptRow]
    now: datetime
    observed: bool = True
    steps: list[Step] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    attempt_facts: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def job(self) -> JobRecord:
        return self.view.job

    def fact(self, name: str) -> Any:
        """A policy column as this batch has it."""
        return self.facts.get(name, getattr(self.row, name))

    def attempt_fact(self, token: int, name: str) -> Any:
        changed = self.attempt_facts.get(token, {})
        return changed[name] if name in changed else getattr(self.rows[token], name)

    def set(self, **facts: Any) -> None:
        self.facts |= facts

    def set_attempt(self, token: int, **facts: Any) -> None:
        self.attempt_facts.setdefault(token, {}).update(facts)

    def attempt(self, token: int) -> AttemptRecord | None:
        return self.view.attempt(token)

    def the_attempt(self, token: int) -> AttemptRecord:
        """An attempt that is known to be there."""
        attempt = self.view.attempt(token)
        if attempt is None:
            raise ProtocolViolation(f"attempt {token} of job {self.row.id} is not held")
        return attempt

    def worker_of(self, token: int) -> WorkerRecord:
        return self.rows[token].worker

    def limits(self, token: int = 0) -> Limits:
        """This job's own bounds; the total of an attempt is unbounded until its manifest is sealed."""
        known = self.attempt_fact(token, "progress_max") if token in self.rows else None
        return Limits(
            max_attempts=self.fact("max_attempts"), max_progress=UNBOUNDED if known is None else known
        )

    def see(self, coordination: CoordinationRecord) -> None:
        """Put what was observed into the view that the next action is decided on."""
        self.view = self.view.with_coordination(
            **{name: getattr(coordination, name) for name in CoordinationRecord.__dataclass_fields__}
        )

    def take(
        self,
        action: str,
        decision: Decision[JobView],
        *,
        token: int = 0,
        worker: WorkerRecord | None = None,
        **params: Any,
    ) -> Decision[JobView]:
        """Keep an accepted decision as a step of the journal; a refused one changes nothing."""
        if isinstance(decision, Accepted):
            observed = write_observed(self.view.coordination, worker)
            self.steps.append(Step(action, token, params, observed, self.view, decision.value))
            self.view = decision.value
        return decision

    def fence(self, token: int) -> Fence:
        return Fence(self.row.id, token)
