"""A job on the model's side: a whole slice, changed by the pure functions alone."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from jobs import protocol
from jobs.ids import JobId
from jobs.protocol import UNBOUNDED, Accepted, CoordinationRecord, Decision, JobView, Limits, WorkerRecord
from jobs.protocol.states import AttemptState, OutcomeRequest, StageState

MAX_ATTEMPTS = 3


@dataclass
class Modelled:
    """One job on the model's side. `totals`: max_progress of the attempts whose manifest was sealed."""

    id: JobId
    view: JobView = field(default_factory=JobView)
    totals: dict[int, int] = field(default_factory=dict)

    def limits(self, token: int = 0) -> Limits:
        return Limits(MAX_ATTEMPTS, self.totals.get(token, UNBOUNDED))

    def take(self, decision: Decision[JobView]) -> Decision[JobView]:
        if isinstance(decision, Accepted):
            # What was seen belongs to the step, not to the job: the next step sees for itself.
            self.view = replace(decision.value, coordination=CoordinationRecord())
        return decision

    def seeing(self, coordination: CoordinationRecord) -> JobView:
        return replace(self.view, coordination=coordination)

    def complete(self, token: int, worker: WorkerRecord) -> Decision[JobView]:
        """The manifest is sealed at 5 bytes: 6 units."""
        attempt = self.view.attempt(token)
        if attempt is not None and attempt.stage_state is StageState.COMPLETE:
            return Accepted(self.view)
        decision = protocol.advance_attempt(self.view, token, 6, worker, Limits(MAX_ATTEMPTS, 6))
        if decision.accepted:
            self.totals[token] = 6
        return self.take(decision)

    def unsettled(self, token: int, succeeds: bool) -> dict[str, Any] | None:
        """What a request to settle adds; None where it would be a repeat, which is compared elsewhere."""
        attempt = self.view.attempt(token)
        if attempt is None:
            return {}
        over = attempt.state in (AttemptState.STOPPED, AttemptState.COMMITTED)
        if over or attempt.pending_outcome is not OutcomeRequest.NONE:
            return None
        return {"total": 5} if succeeds else {}


def agree(answer: Any, expected: Decision[Any]) -> None:
    """Both accepted, or both refused for the same reason."""
    got = None if answer.accepted else answer.reason
    assert got == (None if expected.accepted else expected.reason)  # type: ignore[union-attr]
