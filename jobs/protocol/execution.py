"""What an executing attempt does: AdvanceAttempt, PersistCheckpoint, ReportProgress, CooperativeStop; and
InvalidateCheckpoint, which makes the next attempt start from zero."""

from jobs.protocol.decision import Accepted, Decision, Refusal, Store, action, refuse
from jobs.protocol.records import JobView, Limits, WorkerRecord
from jobs.protocol.states import AttemptState, LeaseState, Phase, Service, StageState, WorkerState


@action("AdvanceAttempt", Store.TARGET)
def advance_attempt(
    view: JobView, token: int, amount: int, worker: WorkerRecord, limits: Limits
) -> Decision[JobView]:
    """Stage more in the attempt's own area. Possible after lease loss: publication is what is fenced."""
    attempt = view.attempt(token)
    if attempt is None or attempt.state is not AttemptState.EXECUTING:
        return refuse(Refusal.NOT_EXECUTING)
    if worker.state is not WorkerState.UP:
        return refuse(Refusal.WORKER_NOT_UP)
    if not worker.can_reach(Service.TARGET):
        return refuse(Refusal.UNREACHABLE)
    if not 1 <= amount <= limits.max_progress:
        return refuse(Refusal.AMOUNT_OUT_OF_RANGE)
    if amount <= attempt.progress:
        return refuse(Refusal.NO_PROGRESS)
    stage = StageState.COMPLETE if amount == limits.max_progress else StageState.PARTIAL
    return Accepted(view.with_attempt(token, progress=amount, stage_state=stage))


@action("PersistCheckpoint", Store.DURABLE)
def persist_checkpoint(view: JobView, token: int, worker: WorkerRecord) -> Decision[JobView]:
    """Make the attempt's progress the point from which a next attempt may resume."""
    attempt = view.attempt(token)
    if not view.current_authority(token):
        return refuse(Refusal.NOT_CURRENT_AUTHORITY)
    if view.job.phase is not Phase.RUNNING:
        return refuse(Refusal.NOT_RUNNING)
    if attempt is None or attempt.state is not AttemptState.EXECUTING:
        return refuse(Refusal.NOT_EXECUTING)
    if worker.state is not WorkerState.UP:
        return refuse(Refusal.WORKER_NOT_UP)
    if not worker.can_reach(Service.DURABLE):
        return refuse(Refusal.UNREACHABLE)
    if attempt.progress == 0:
        return refuse(Refusal.NO_PROGRESS)
    if view.job.checkpoint_valid and view.job.checkpoint == attempt.progress:
        return refuse(Refusal.NOTHING_CHANGED)
    return Accepted(view.with_job(checkpoint=attempt.progress, checkpoint_valid=True))


@action("InvalidateCheckpoint", Store.DURABLE)
def invalidate_checkpoint(view: JobView) -> Decision[JobView]:
    """The proof no longer holds: the next attempt starts from zero."""
    if view.job.terminal:
        return refuse(Refusal.TERMINAL)
    if not view.job.checkpoint_valid:
        return refuse(Refusal.CHECKPOINT_NOT_VALID)
    return Accepted(view.with_job(checkpoint_valid=False))


@action("ReportProgress", Store.COORDINATION)
def report_progress(view: JobView, token: int, worker: WorkerRecord) -> Decision[JobView]:
    """Leave a hint for readers, who check it again against the durable authority."""
    attempt = view.attempt(token)
    if not view.current_authority(token):
        return refuse(Refusal.NOT_CURRENT_AUTHORITY)
    if view.job.phase is not Phase.RUNNING:
        return refuse(Refusal.NOT_RUNNING)
    if not view.coordination.lease_is_live(token):
        return refuse(Refusal.LEASE_NOT_LIVE)
    if attempt is None or attempt.state is not AttemptState.EXECUTING:
        return refuse(Refusal.NOT_EXECUTING)
    if worker.state is not WorkerState.UP:
        return refuse(Refusal.WORKER_NOT_UP)
    if not worker.can_reach(Service.COORDINATION):
        return refuse(Refusal.UNREACHABLE)
    shown = (view.coordination.live_progress, view.coordination.live_progress_token)
    if shown == (attempt.progress, token):
        return refuse(Refusal.NOTHING_CHANGED)
    return Accepted(view.with_coordination(live_progress=attempt.progress, live_progress_token=token))


@action("CooperativeStop", Store.DURABLE)
def cooperative_stop(view: JobView, token: int, worker: WorkerRecord) -> Decision[JobView]:
    """The attempt's process has heard that it may not go on, and has stopped."""
    attempt = view.attempt(token)
    if attempt is None or attempt.state is not AttemptState.EXECUTING:
        return refuse(Refusal.NOT_EXECUTING)
    lease = view.coordination.lease(token)
    lease_over = lease is not None and lease.state in (LeaseState.EXPIRED, LeaseState.LOST)
    heard_durably = worker.can_reach(Service.DURABLE) and view.job.cancel_requested
    has_reason = (
        lease_over or view.coordination.cancel_notice or heard_durably or not view.current_authority(token)
    )
    if not has_reason:
        return refuse(Refusal.NO_REASON_TO_STOP)
    return Accepted(view.with_attempt(token, state=AttemptState.STOPPED))
