"""SendOutcome and ProcessOutcome: the only way a result is published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.protocol import Fence, JobView
from jobs.protocol.states import OutcomeRequest, Phase
from jobs.values import Actor, Answer, AttemptEnd, Result


@dataclass(frozen=True, slots=True)
class SettleRequest:
    """What an attempt wants recorded. A success carries its result, and the total if not recorded before.

    `drained` marks a retryable failure that is no failure of the job: rescheduled at once and not counted.
    """

    fence: Fence
    outcome: OutcomeRequest
    reason: str = ""
    result: Result | None = None
    total: int | None = None
    drained: bool = False
    retry_after_s: float | None = None
    bytes_sent: int | None = None


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of an outcome. `action` is the one of ProcessOutcome's disjuncts that was taken.

    REJECTED: nothing was published, and the attempt's process is recorded as stopped. `repeated`: it was settled so
    before, and nothing changed now.
    """

    fence: Fence
    end: AttemptEnd
    action: str
    phase: Phase
    repeated: bool = False


def settle(requests: Sequence[SettleRequest], *, actor: Actor | None = None) -> list[Answer[Settled]]:
    """SendOutcome and ProcessOutcome in one transaction. Idempotent: ask again until there is an answer.

    Accepted with COMMITTED, RETRYABLE_FAILURE, PERMANENT_FAILURE, DRAINED or REJECTED. Refused when the attempt is not
    executing (it was reaped before it was activated, its incarnation was declared down).
    """
    raise NotImplementedError


def send_outcome(requests: Sequence[SettleRequest], *, actor: Actor | None = None) -> list[Answer[JobView]]:
    """SendOutcome alone: the outcome is pending until process_outcome."""
    raise NotImplementedError


def process_outcome(fences: Sequence[Fence], *, actor: Actor | None = None) -> list[Answer[Settled]]:
    """ProcessOutcome of a pending outcome, by anyone."""
    raise NotImplementedError
