"""Cancel: RequestCancel, PublishCancelNotice, FinalizeCancel. After Cancelled nothing may be published."""

from dataclasses import replace

from jobs.protocol.decision import Accepted, Decision, Refusal, Store, action, refuse
from jobs.protocol.records import NO_TOKEN, JobView
from jobs.protocol.states import AttemptState, Phase


@action("RequestCancel", Store.DURABLE)
def request_cancel(view: JobView) -> Decision[JobView]:
    """A waiting job is Cancelled at once; a running one is Cancelling until that is finalised."""
    phase = view.job.phase
    if phase not in (Phase.QUEUED, Phase.RUNNING, Phase.RETRY_WAIT):
        return refuse(Refusal.NOT_CANCELLABLE)
    running = phase is Phase.RUNNING
    return Accepted(
        view.with_job(
            cancel_requested=True,
            phase=Phase.CANCELLING if running else Phase.CANCELLED,
            authority=view.job.authority if running else NO_TOKEN,
            dispatch_needed=False,
        )
    )


@action("FinalizeCancel", Store.DURABLE)
def finalize_cancel(view: JobView) -> Decision[JobView]:
    """Forbid publication for good. It does not claim that the process has stopped."""
    if view.job.phase is not Phase.CANCELLING:
        return refuse(Refusal.NOT_CANCELLING)
    attempts = tuple(
        replace(attempt, state=AttemptState.STOPPED) if attempt.state is AttemptState.AUTHORIZED else attempt
        for attempt in view.attempts
    )
    cancelled = view.with_job(phase=Phase.CANCELLED, authority=NO_TOKEN)
    return Accepted(replace(cancelled, attempts=attempts))


@action("PublishCancelNotice", Store.COORDINATION)
def publish_cancel_notice(view: JobView) -> Decision[JobView]:
    """Tell the worker that cancel was requested. A terminal job's notice is never set again."""
    if not view.job.cancel_requested:
        return refuse(Refusal.CANCEL_NOT_REQUESTED)
    if view.job.terminal:
        return refuse(Refusal.TERMINAL)
    if view.coordination.cancel_notice:
        return refuse(Refusal.NOTICE_PRESENT)
    return Accepted(view.with_coordination(cancel_notice=True))
