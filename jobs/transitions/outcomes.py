"""SendOutcome and ProcessOutcome: the only way a result is published."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from typing import Final

from jobs import protocol, store
from jobs.errors import ProtocolViolation
from jobs.held import HeldJob
from jobs.models import CommittedResult
from jobs.policy import bear_failure, clean_text, retry_at
from jobs.protocol import Accepted, AttemptRecord, Decision, Fence, JobView, Refused
from jobs.protocol.states import AttemptState, OutcomeRequest, Phase
from jobs.sql import Inserts
from jobs.store import Batch
from jobs.transitions.execution import complete_stage, end_attempt, stop
from jobs.values import Actor, Answer, AttemptEnd, Declined, Result

RESULTS: Final = Inserts(
    CommittedResult,
    ("job", "attempt", "token", *(field.name for field in fields(Result)), "committed_at"),
)
_END_OF_ACTION: Final = {
    "AcceptSuccess": AttemptEnd.COMMITTED,
    "AcceptPermanentFailure": AttemptEnd.PERMANENT_FAILURE,
    "AcceptRetryableFailureWithBudget": AttemptEnd.RETRYABLE_FAILURE,
    "AcceptRetryableFailureExhausted": AttemptEnd.RETRYABLE_FAILURE,
    "RejectOutcome": AttemptEnd.REJECTED,
}
_REJECTED: Final = frozenset({AttemptEnd.REJECTED})
_FAILED: Final = frozenset({AttemptEnd.RETRYABLE_FAILURE, AttemptEnd.PERMANENT_FAILURE, AttemptEnd.DRAINED})
# A retryable failure may have been recorded as permanent: the budget of failures was spent.
_ENDS_OF: Final[dict[OutcomeRequest, frozenset[AttemptEnd]]] = {
    OutcomeRequest.NONE: frozenset(),
    OutcomeRequest.SUCCESS: _REJECTED | {AttemptEnd.COMMITTED},
    OutcomeRequest.RETRYABLE_FAILURE: _REJECTED | _FAILED,
    OutcomeRequest.PERMANENT_FAILURE: _REJECTED | {AttemptEnd.PERMANENT_FAILURE},
}


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

    REJECTED: nothing was published, and the attempt's process is recorded as stopped. `repeated`: it was
    settled so before, and nothing changed now.
    """

    fence: Fence
    end: AttemptEnd
    action: str
    phase: Phase
    repeated: bool = False


def settle(requests: Sequence[SettleRequest], *, actor: Actor | None = None) -> list[Answer[Settled]]:
    """SendOutcome and ProcessOutcome in one transaction. Idempotent: ask again until there is an answer.

    Accepted with COMMITTED, RETRYABLE_FAILURE, PERMANENT_FAILURE, DRAINED or REJECTED. Refused when the
    attempt is not executing (it was reaped before it was activated, its incarnation was declared down).
    """
    chances = [random.random() for _ in requests]

    def work(batch: Batch) -> list[Answer[Settled]]:
        return [_settle(batch, *given) for given in zip(requests, chances, strict=True)]

    fences = [request.fence for request in requests]
    return store.act(store.distinct(fences), work, fences=fences, actor=actor)


def _settle(batch: Batch, request: SettleRequest, chance: float) -> Answer[Settled]:
    found = batch.find_attempt(request.fence)
    if isinstance(found, Declined):
        return found
    job, attempt = found
    token = attempt.token
    if (repeated := _settled_before(job, attempt, request)) is not None:
        return Accepted(repeated)
    if request.outcome is OutcomeRequest.SUCCESS and request.total is not None:
        completed = complete_stage(job, attempt, request.total)
        if not isinstance(completed, Accepted):
            return completed
    if attempt.pending_outcome is OutcomeRequest.NONE:
        sent = _send(job, token, request)
        if isinstance(sent, Refused):
            return sent
    settled = _process(batch, job, token, request, chance)
    if isinstance(settled, Accepted) and settled.value.end is AttemptEnd.REJECTED:
        stop(job, token, f"outcome refused: {request.reason or request.outcome}")
    return settled


def _settled_before(job: HeldJob, attempt: AttemptRecord, request: SettleRequest) -> Settled | None:
    """An earlier call with this very outcome was carried out, though its answer may have been lost."""
    end = job.attempt_fact(attempt.token, "outcome")
    ended = attempt.state in (AttemptState.STOPPED, AttemptState.COMMITTED)
    if not ended or end not in _ENDS_OF[request.outcome]:
        return None
    return Settled(job.fence(attempt.token), AttemptEnd(end), "", job.job.phase, repeated=True)


def _send(job: HeldJob, token: int, request: SettleRequest) -> Decision[JobView]:
    worker = job.worker_of(token)
    outcome = bear_failure(job, request.outcome, drained=request.drained)
    decision = job.take(
        "SendOutcome",
        protocol.send_outcome(job.view, token, outcome, worker),
        token=token,
        worker=worker,
        outcome=outcome,
    )
    if decision.accepted and request.bytes_sent is not None:
        job.set_attempt(token, bytes_sent=request.bytes_sent)
    return decision


def _process(
    batch: Batch, job: HeldJob, token: int, request: SettleRequest, chance: float
) -> Answer[Settled]:
    limits = job.limits(token)
    action, decision = protocol.process_outcome(job.view, token, limits)
    if isinstance(decision, Refused):
        return decision
    job.take(
        action, decision, token=token, max_attempts=limits.max_attempts, max_progress=limits.max_progress
    )
    end = _END_OF_ACTION[action]
    if end is AttemptEnd.COMMITTED:
        _publish(batch, job, token, request)
    elif end is not AttemptEnd.REJECTED:
        end = _fail(job, request, end, chance)
    end_attempt(job, token, end, request.reason, confirmed=end is not AttemptEnd.REJECTED)
    return Accepted(Settled(job.fence(token), end, action, job.job.phase))


def _publish(batch: Batch, job: HeldJob, token: int, request: SettleRequest) -> None:
    result = request.result
    if result is None:
        raise ProtocolViolation(f"attempt {token} of {job.row.id} succeeded without a result")
    row = job.rows[token]
    job.set(why="", checkpoint_token=token, checkpoint_base=row.progress_base, losses_in_row=0)
    batch.insert(RESULTS, [(job.row.id, row.id, token, *astuple(result), job.now)])


def _fail(job: HeldJob, request: SettleRequest, end: AttemptEnd, chance: float) -> AttemptEnd:
    """Retry policy's part of a failure: count it, say why, and say when the next attempt may start."""
    drained = request.drained and end is AttemptEnd.RETRYABLE_FAILURE
    failures = job.fact("failures") + (0 if drained else 1)
    job.set(failures=failures, losses_in_row=0, why=clean_text(request.reason))
    if job.job.phase is Phase.RETRY_WAIT:
        due = job.now if drained else retry_at(job, failures, chance, request.retry_after_s)
        job.set(retry_at=due)
    return AttemptEnd.DRAINED if drained else end


def send_outcome(requests: Sequence[SettleRequest], *, actor: Actor | None = None) -> list[Answer[JobView]]:
    """SendOutcome alone: the outcome is pending until process_outcome, which knows no result: failures only.

    A success is sent and processed by `settle`, because its result is published with it.
    """
    fences = [request.fence for request in requests]

    def one(batch: Batch, request: SettleRequest) -> Answer[JobView]:
        found = batch.find_attempt(request.fence)
        if isinstance(found, Declined):
            return found
        decision = _send(found[0], request.fence.token, request)
        if decision.accepted and request.reason:
            found[0].set_attempt(request.fence.token, why=clean_text(request.reason))
        return decision

    def work(batch: Batch) -> list[Answer[JobView]]:
        return [one(batch, request) for request in requests]

    if any(request.outcome is OutcomeRequest.SUCCESS for request in requests):
        raise ProtocolViolation("a success is sent by settle, with its result")
    return store.act(store.distinct(fences), work, fences=fences, actor=actor)


def process_outcome(fences: Sequence[Fence], *, actor: Actor | None = None) -> list[Answer[Settled]]:
    """ProcessOutcome of a pending failure, by anyone."""
    chances = [random.random() for _ in fences]

    def one(batch: Batch, fence: Fence, chance: float) -> Answer[Settled]:
        found = batch.find_attempt(fence)
        if isinstance(found, Declined):
            return found
        job, attempt = found
        reason = str(job.attempt_fact(attempt.token, "why"))
        return _process(
            batch, job, attempt.token, SettleRequest(fence, attempt.pending_outcome, reason), chance
        )

    def work(batch: Batch) -> list[Answer[Settled]]:
        return [one(batch, *given) for given in zip(fences, chances, strict=True)]

    return store.act(store.distinct(fences), work, fences=fences, actor=actor)
