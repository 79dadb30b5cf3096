"""The only way a result is published: SendOutcome, then one of AcceptSuccess, AcceptFailure and
RejectOutcome.
"""

from jobs.protocol.decision import Accepted, Decision, Refusal, Store, action, refuse
from jobs.protocol.records import NO_TOKEN, JobView, Limits, WorkerRecord
from jobs.protocol.states import (
    FAILURE_OUTCOMES,
    AttemptState,
    OutcomeRequest,
    Phase,
    Service,
    StageState,
    WorkerState,
)


@action("SendOutcome", Store.DURABLE)
def send_outcome(
    view: JobView, token: int, outcome: OutcomeRequest, worker: WorkerRecord
) -> Decision[JobView]:
    """An attempt asks for its outcome to be recorded. Success needs a complete stage."""
    attempt = view.attempt(token)
    if outcome is OutcomeRequest.NONE:
        return refuse(Refusal.NOT_AN_OUTCOME)
    if attempt is None or attempt.state is not AttemptState.EXECUTING:
        return refuse(Refusal.NOT_EXECUTING)
    if attempt.pending_outcome is not OutcomeRequest.NONE:
        return refuse(Refusal.OUTCOME_PENDING)
    if worker.state is not WorkerState.UP:
        return refuse(Refusal.WORKER_NOT_UP)
    if not worker.can_reach(Service.DURABLE):
        return refuse(Refusal.UNREACHABLE)
    if outcome not in FAILURE_OUTCOMES and attempt.stage_state is not StageState.COMPLETE:
        return refuse(Refusal.STAGE_NOT_COMPLETE)
    return Accepted(view.with_attempt(token, pending_outcome=outcome))


def commit_eligible(view: JobView, token: int) -> Refusal | None:
    """CommitEligible(a): None when it holds, else the first conjunct that fails."""
    attempt = view.attempt(token)
    if attempt is None or attempt.pending_outcome is not OutcomeRequest.SUCCESS:
        return Refusal.NO_SUCH_OUTCOME_PENDING
    unfit = _not_answerable(view, token)
    if unfit is None and attempt.stage_state is not StageState.COMPLETE:
        return Refusal.STAGE_NOT_COMPLETE
    return unfit


def failure_eligible(view: JobView, token: int) -> Refusal | None:
    """FailureEligible(a): None when it holds, else the first conjunct that fails."""
    attempt = view.attempt(token)
    if attempt is None or attempt.pending_outcome not in FAILURE_OUTCOMES:
        return Refusal.NO_SUCH_OUTCOME_PENDING
    return _not_answerable(view, token)


def _not_answerable(view: JobView, token: int) -> Refusal | None:
    if not view.current_authority(token):
        return Refusal.NOT_CURRENT_AUTHORITY
    if view.job.phase is not Phase.RUNNING:
        return Refusal.NOT_RUNNING
    if view.job.cancel_requested:
        return Refusal.CANCEL_REQUESTED
    return None


@action("AcceptSuccess", Store.DURABLE)
def accept_success(view: JobView, token: int, limits: Limits) -> Decision[JobView]:
    """The sole publication point: the attempt that holds authority becomes the committed result."""
    unfit = commit_eligible(view, token)
    if unfit is not None:
        return refuse(unfit)
    committed = view.with_job(
        phase=Phase.SUCCEEDED,
        authority=NO_TOKEN,
        committed=token,
        checkpoint=limits.max_progress,
        checkpoint_valid=True,
    )
    return Accepted(
        committed.with_attempt(token, state=AttemptState.COMMITTED, pending_outcome=OutcomeRequest.NONE)
    )


def _accept_failure(view: JobView, token: int, outcome: OutcomeRequest, limits: Limits) -> Decision[JobView]:
    attempt = view.attempt(token)
    if attempt is None or attempt.pending_outcome is not outcome:
        return refuse(Refusal.NO_SUCH_OUTCOME_PENDING)
    unfit = failure_eligible(view, token)
    if unfit is not None:
        return refuse(unfit)
    retry = outcome is OutcomeRequest.RETRYABLE_FAILURE and view.job.current_token < limits.max_attempts
    ended = view.with_job(phase=Phase.RETRY_WAIT if retry else Phase.FAILED, authority=NO_TOKEN)
    return Accepted(
        ended.with_attempt(token, state=AttemptState.STOPPED, pending_outcome=OutcomeRequest.NONE)
    )


@action("AcceptPermanentFailure", Store.DURABLE)
def accept_permanent_failure(view: JobView, token: int, limits: Limits) -> Decision[JobView]:
    """The job has failed for good."""
    return _accept_failure(view, token, OutcomeRequest.PERMANENT_FAILURE, limits)


@action("AcceptRetryableFailureWithBudget", Store.DURABLE)
def accept_retryable_failure_with_budget(view: JobView, token: int, limits: Limits) -> Decision[JobView]:
    """The job waits for its next attempt."""
    if view.job.current_token >= limits.max_attempts:
        return refuse(Refusal.BUDGET_SPENT)
    return _accept_failure(view, token, OutcomeRequest.RETRYABLE_FAILURE, limits)


@action("AcceptRetryableFailureExhausted", Store.DURABLE)
def accept_retryable_failure_exhausted(view: JobView, token: int, limits: Limits) -> Decision[JobView]:
    """The last attempt of the budget failed: so has the job."""
    if view.job.current_token != limits.max_attempts:
        return refuse(Refusal.BUDGET_LEFT)
    return _accept_failure(view, token, OutcomeRequest.RETRYABLE_FAILURE, limits)


@action("RejectOutcome", Store.DURABLE)
def reject_outcome(view: JobView, token: int) -> Decision[JobView]:
    """An outcome that may not be accepted is dropped. Nothing else changes."""
    attempt = view.attempt(token)
    if attempt is None or attempt.pending_outcome is OutcomeRequest.NONE:
        return refuse(Refusal.NO_SUCH_OUTCOME_PENDING)
    if commit_eligible(view, token) is None or failure_eligible(view, token) is None:
        return refuse(Refusal.OUTCOME_ELIGIBLE)
    return Accepted(view.with_attempt(token, pending_outcome=OutcomeRequest.NONE))


def process_outcome(view: JobView, token: int, limits: Limits) -> tuple[str, Decision[JobView]]:
    """ProcessOutcome(a): the one of its five disjuncts that is enabled, by name, or the refusal of
    RejectOutcome.
    """
    attempt = view.attempt(token)
    if attempt is None or attempt.pending_outcome is OutcomeRequest.NONE:
        return "RejectOutcome", refuse(Refusal.NO_SUCH_OUTCOME_PENDING)
    if commit_eligible(view, token) is None:
        return "AcceptSuccess", accept_success(view, token, limits)
    if failure_eligible(view, token) is not None:
        return "RejectOutcome", reject_outcome(view, token)
    if attempt.pending_outcome is OutcomeRequest.PERMANENT_FAILURE:
        return "AcceptPermanentFailure", accept_permanent_failure(view, token, limits)
    if view.job.current_token < limits.max_attempts:
        name = "AcceptRetryableFailureWithBudget"
        return name, accept_retryable_failure_with_budget(view, token, limits)
    return "AcceptRetryableFailureExhausted", accept_retryable_failure_exhausted(view, token, limits)
