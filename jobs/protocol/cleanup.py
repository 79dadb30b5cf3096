"""What is left over: CleanupStage, ClearStaleLiveProgress, CleanTerminalCoordination."""

from jobs.protocol.decision import Accepted, Decision, Refusal, Store, action, refuse
from jobs.protocol.records import NO_TOKEN, JobView, WorkerRecord
from jobs.protocol.states import AttemptState, StageState, WorkerState


@action("CleanupStage", Store.TARGET)
def cleanup_stage(view: JobView, token: int, worker: WorkerRecord) -> Decision[JobView]:
    """Delete the stage of an attempt that was not committed and can no longer write. `worker` ran it."""
    attempt = view.attempt(token)
    if attempt is None or attempt.stage_state not in (StageState.PARTIAL, StageState.COMPLETE):
        return refuse(Refusal.NOTHING_STAGED)
    if view.job.committed == token:
        return refuse(Refusal.COMMITTED)
    if view.current_authority(token):
        return refuse(Refusal.CURRENT_AUTHORITY)
    if not (attempt.state is AttemptState.STOPPED or worker.state is WorkerState.DOWN):
        return refuse(Refusal.MAY_STILL_WRITE)
    return Accepted(view.with_attempt(token, stage_state=StageState.CLEANED))


@action("ClearStaleLiveProgress", Store.COORDINATION)
def clear_stale_live_progress(view: JobView) -> Decision[JobView]:
    """Drop live progress that is not backed by current authority and a live lease."""
    token = view.coordination.live_progress_token
    if token == NO_TOKEN:
        return refuse(Refusal.NO_LIVE_PROGRESS)
    if view.current_authority(token) and view.coordination.lease_is_live(token):
        return refuse(Refusal.PROGRESS_IS_BACKED)
    return Accepted(view.with_coordination(live_progress=0, live_progress_token=NO_TOKEN))


@action("CleanTerminalCoordination", Store.COORDINATION)
def clean_terminal_coordination(view: JobView) -> Decision[JobView]:
    """Nothing of a terminal job stays in the CoordinationStore but leases, which ReleaseLease ends."""
    if not view.job.terminal:
        return refuse(Refusal.NOT_TERMINAL)
    coordination = view.coordination
    dirty = (
        coordination.queued
        or coordination.reservation is not None
        or coordination.cancel_notice
        or coordination.live_progress != 0
        or coordination.live_progress_token != NO_TOKEN
    )
    if not dirty:
        return refuse(Refusal.COORDINATION_CLEAN)
    return Accepted(
        view.with_coordination(
            queued=False,
            reservation=None,
            reservation_age=0,
            cancel_notice=False,
            live_progress=0,
            live_progress_token=NO_TOKEN,
        )
    )
