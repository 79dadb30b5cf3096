"""SystemQuiescent: the only state in which nothing is left to do."""

from jobs.protocol.records import AttemptRecord, JobView
from jobs.protocol.states import AttemptState, OutcomeRequest, StageState


def quiescent(view: JobView) -> bool:
    """SystemQuiescent, for one job: terminal, and nothing left of it but its committed result."""
    return (
        view.job.terminal
        and view.coordination.clean
        and view.coordination.live_lease_count == 0
        and all(_attempt_quiescent(view, attempt) for attempt in view.attempts)
    )


def _attempt_quiescent(view: JobView, attempt: AttemptRecord) -> bool:
    staged = attempt.stage_state in (StageState.PARTIAL, StageState.COMPLETE)
    return (
        attempt.pending_outcome is OutcomeRequest.NONE
        and attempt.state not in (AttemptState.AUTHORIZED, AttemptState.EXECUTING)
        and (not staged or view.job.committed == attempt.token)
    )
