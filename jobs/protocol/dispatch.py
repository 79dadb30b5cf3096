"""From accepted to executing: Enqueue, Reserve, AuthorizeAttempt, ActivateAttempt, and the end of a
reservation.
"""

from dataclasses import replace

from jobs.protocol.decision import Accepted, Decision, Refusal, Store, action, refuse
from jobs.protocol.records import AttemptRecord, JobView, LeaseRecord, Limits, Usage, WorkerRecord
from jobs.protocol.states import AttemptState, LeaseState, Phase, Service, StageState, WorkerState


@action("Enqueue", Store.COORDINATION)
def enqueue(view: JobView) -> Decision[JobView]:
    """Project the durable need for dispatch into the CoordinationStore."""
    if view.job.phase is not Phase.QUEUED:
        return refuse(Refusal.NOT_QUEUED)
    if not view.job.dispatch_needed:
        return refuse(Refusal.DISPATCH_NOT_NEEDED)
    if view.coordination.queued:
        return refuse(Refusal.MARKER_PRESENT)
    if view.coordination.reservation is not None:
        return refuse(Refusal.RESERVED)
    return Accepted(view.with_coordination(queued=True))


@action("Reserve", Store.COORDINATION)
def reserve(view: JobView, worker: WorkerRecord, usage: Usage, limits: Limits) -> Decision[JobView]:
    """Take the marker and a permit for `worker`."""
    if not view.coordination.queued:
        return refuse(Refusal.NO_MARKER)
    if view.coordination.reservation is not None:
        return refuse(Refusal.RESERVED)
    if worker.state is not WorkerState.UP:
        return refuse(Refusal.WORKER_NOT_UP)
    if not worker.can_reach(Service.COORDINATION):
        return refuse(Refusal.UNREACHABLE)
    if usage.global_used >= limits.global_limit:
        return refuse(Refusal.NO_GLOBAL_PERMIT)
    if usage.local_used >= limits.local_limit:
        return refuse(Refusal.NO_LOCAL_PERMIT)
    return Accepted(view.with_coordination(queued=False, reservation=worker.id, reservation_age=0))


@action("AuthorizeAttempt", Store.DURABLE)
def authorize_attempt(view: JobView, worker: WorkerRecord, limits: Limits) -> Decision[JobView]:
    """Allocate the next token and make it the authority. Spends one attempt of the budget."""
    job = view.job
    token = job.current_token + 1
    if job.phase is not Phase.QUEUED:
        return refuse(Refusal.NOT_QUEUED)
    if not job.dispatch_needed:
        return refuse(Refusal.DISPATCH_NOT_NEEDED)
    if view.coordination.reservation != worker.id:
        return refuse(Refusal.RESERVED_BY_ANOTHER)
    if worker.state is not WorkerState.UP:
        return refuse(Refusal.WORKER_NOT_UP)
    if not worker.can_reach(Service.DURABLE):
        return refuse(Refusal.UNREACHABLE)
    if job.current_token >= limits.max_attempts:
        return refuse(Refusal.BUDGET_SPENT)
    if view.attempt(token) is not None:
        return refuse(Refusal.TOKEN_ALREADY_USED)
    start = job.checkpoint if job.checkpoint_valid else 0
    attempt = AttemptRecord(
        token=token,
        worker=worker.id,
        progress=start,
        initial_progress=start,
        resumed_from_checkpoint=start > 0,
        stage_state=_stage_started_with(start, limits),
    )
    granted = view.with_job(phase=Phase.RUNNING, current_token=token, authority=token, dispatch_needed=False)
    return Accepted(replace(granted, attempts=(*view.attempts, attempt)))


def _stage_started_with(progress: int, limits: Limits) -> StageState:
    if progress == 0:
        return StageState.NONE
    return StageState.COMPLETE if progress == limits.max_progress else StageState.PARTIAL


@action("ActivateAttempt", Store.COORDINATION)
def activate_attempt(view: JobView, token: int, worker: WorkerRecord) -> Decision[JobView]:
    """Turn the reservation into the live lease of `token`, retiring an older attempt's leftover lease."""
    attempt = view.attempt(token)
    if attempt is None:
        return refuse(Refusal.NO_SUCH_ATTEMPT)
    if not view.current_authority(token):
        return refuse(Refusal.NOT_CURRENT_AUTHORITY)
    if view.job.phase is not Phase.RUNNING:
        return refuse(Refusal.NOT_RUNNING)
    if attempt.state is not AttemptState.AUTHORIZED:
        return refuse(Refusal.NOT_AUTHORIZED)
    if view.coordination.reservation != attempt.worker:
        return refuse(Refusal.NOT_RESERVED)
    if worker.state is not WorkerState.UP:
        return refuse(Refusal.WORKER_NOT_UP)
    if not worker.can_reach(Service.COORDINATION):
        return refuse(Refusal.UNREACHABLE)
    retired = (
        replace(lease, state=LeaseState.EXPIRED, age=0) if lease.state is LeaseState.LIVE else lease
        for lease in view.coordination.leases
        if lease.token != token
    )
    coordination = replace(
        view.coordination,
        reservation=None,
        reservation_age=0,
        leases=tuple(retired),
        live_progress=attempt.progress,
        live_progress_token=token,
    ).with_lease(LeaseRecord(token, LeaseState.LIVE))
    executing = view.with_attempt(token, state=AttemptState.EXECUTING)
    return Accepted(replace(executing, coordination=coordination))


@action("ExpireReservation", Store.COORDINATION)
def expire_reservation(view: JobView, limits: Limits) -> Decision[JobView]:
    """A lapsed reservation is gone: a queued job may be enqueued again, an authorised attempt reaped."""
    if view.coordination.reservation is None:
        return refuse(Refusal.NOT_RESERVED)
    if view.coordination.reservation_age != limits.reservation_limit:
        return refuse(Refusal.RESERVATION_NOT_LAPSED)
    return Accepted(view.with_coordination(reservation=None, reservation_age=0))


@action("ReleaseReservation", Store.COORDINATION)
def release_reservation(view: JobView, holder: WorkerRecord) -> Decision[JobView]:
    """Give back a reservation that can no longer become a lease. `holder` is the worker that has it."""
    job = view.job
    if view.coordination.reservation is None:
        return refuse(Refusal.NOT_RESERVED)
    if view.coordination.reservation != holder.id:
        return refuse(Refusal.RESERVED_BY_ANOTHER)
    authority = view.attempt(job.authority)
    activated = authority is not None and authority.state is not AttemptState.AUTHORIZED
    cancelled = job.terminal or job.phase is Phase.CANCELLING
    if not (cancelled or holder.state is not WorkerState.UP or activated):
        return refuse(Refusal.RESERVATION_STILL_NEEDED)
    return Accepted(view.with_coordination(reservation=None, reservation_age=0))
