"""The module's action properties, under its names: what is true of every step, of one job's slice before and
after.
"""

from collections.abc import Callable, Mapping
from typing import Final

from jobs.protocol.records import NO_TOKEN, AttemptRecord, JobView, Limits
from jobs.protocol.states import AttemptState, OutcomeRequest, Phase, StageState

StepProperty = Callable[[JobView, JobView, Limits], bool]


def terminal_state_is_immutable(before: JobView, after: JobView, limits: Limits) -> bool:
    """TerminalStateIsImmutable: but for `dispatch_needed`, which is nothing any more, the job's row stays as
    it is.
    """
    if not before.job.terminal:
        return True
    was, now = before.job, after.job
    return (
        now.phase is was.phase
        and now.cancel_requested == was.cancel_requested
        and now.current_token == was.current_token
        and now.authority == was.authority
        and now.committed == was.committed
        and now.checkpoint == was.checkpoint
        and now.checkpoint_valid == was.checkpoint_valid
    )


def fencing_tokens_monotonic(before: JobView, after: JobView, limits: Limits) -> bool:
    """FencingTokensMonotonic."""
    return after.job.current_token >= before.job.current_token


def commit_is_fenced_cas(before: JobView, after: JobView, limits: Limits) -> bool:
    """CommitIsFencedCAS: what becomes the committed result was the authority and asked for it, complete."""
    was, token = before.job, after.job.committed
    if token == was.committed:
        return True
    attempt = before.attempt(token)
    return (
        was.committed == NO_TOKEN
        and was.phase is Phase.RUNNING
        and was.authority == token == was.current_token
        and attempt is not None
        and attempt.pending_outcome is OutcomeRequest.SUCCESS
        and not was.cancel_requested
        and attempt.stage_state is StageState.COMPLETE
    )


def failure_disposition_honored(before: JobView, after: JobView, limits: Limits) -> bool:
    """FailureDispositionHonored: permanent ends the job; retryable does so only when the budget is spent."""
    token = before.job.authority
    if token == NO_TOKEN or after.job.authority != NO_TOKEN:
        return True
    was, now = before.attempt(token), after.attempt(token)
    if was is None or not _failure_is_due(before, was):
        return True
    if now is None or now.state is not AttemptState.STOPPED or now.pending_outcome is not OutcomeRequest.NONE:
        return True
    permanent = was.pending_outcome is OutcomeRequest.PERMANENT_FAILURE
    retries = not permanent and before.job.current_token < limits.max_attempts
    return after.job.phase is (Phase.RETRY_WAIT if retries else Phase.FAILED)


def _failure_is_due(view: JobView, attempt: AttemptRecord) -> bool:
    """FailureEligible(a), said without the guard that it judges."""
    job = view.job
    return (
        attempt.pending_outcome in (OutcomeRequest.RETRYABLE_FAILURE, OutcomeRequest.PERMANENT_FAILURE)
        and attempt.token == job.authority == job.current_token
        and job.phase is Phase.RUNNING
        and not job.cancel_requested
    )


PROPERTIES: Final[Mapping[str, StepProperty]] = {
    "TerminalStateIsImmutable": terminal_state_is_immutable,
    "FencingTokensMonotonic": fencing_tokens_monotonic,
    "CommitIsFencedCAS": commit_is_fenced_cas,
    "FailureDispositionHonored": failure_disposition_honored,
}


def broken_step(before: JobView, after: JobView, limits: Limits) -> list[str]:
    """The properties that this step breaks. They are all about the job's record."""
    if before.job is after.job:
        return []
    return [name for name, holds in PROPERTIES.items() if not holds(before, after, limits)]
