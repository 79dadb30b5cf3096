"""What follows a loss: ReapLostAttempt, ScheduleRetry, and the two ends of a worker incarnation's life."""

from dataclasses import replace

from jobs.protocol.decision import Accepted, Decision, Refusal, Store, action, refuse
from jobs.protocol.records import NO_TOKEN, JobView, Limits, WorkerId, WorkerRecord
from jobs.protocol.states import AttemptState, Phase, WorkerState


@action("ReapLostAttempt", Store.DURABLE)
def reap_lost_attempt(view: JobView, token: int, limits: Limits) -> Decision[JobView]:
    """Revoke the authority of an attempt without a live lease. It may run on as a zombie until it stops."""
    attempt = view.attempt(token)
    if attempt is None or not view.current_authority(token):
        return refuse(Refusal.NOT_CURRENT_AUTHORITY)
    if view.job.phase is not Phase.RUNNING:
        return refuse(Refusal.NOT_RUNNING)
    if view.coordination.lease_is_live(token):
        return refuse(Refusal.LEASE_IS_LIVE)
    never_activated = attempt.state is AttemptState.AUTHORIZED
    if never_activated and view.coordination.reservation is not None:
        return refuse(Refusal.RESERVED)
    budget_left = view.job.current_token < limits.max_attempts
    revoked = view.with_job(phase=Phase.RETRY_WAIT if budget_left else Phase.FAILED, authority=NO_TOKEN)
    return Accepted(revoked.with_attempt(token, state=AttemptState.STOPPED) if never_activated else revoked)


@action("ScheduleRetry", Store.DURABLE)
def schedule_retry(view: JobView) -> Decision[JobView]:
    """Backoff is over (when that is, is policy): the job wants dispatch again."""
    if view.job.phase is not Phase.RETRY_WAIT:
        return refuse(Refusal.NOT_RETRY_WAIT)
    return Accepted(view.with_job(phase=Phase.QUEUED, dispatch_needed=True))


@action("StartIncarnation", Store.DURABLE)
def start_incarnation(worker: WorkerRecord) -> Decision[WorkerRecord]:
    """An id that was never used is Up."""
    if worker.state is not WorkerState.UNUSED:
        return refuse(Refusal.WORKER_NOT_UNUSED)
    return Accepted(replace(worker, state=WorkerState.UP))


@action("CrashWorker", Store.DURABLE)
def declare_down(worker: WorkerRecord) -> Decision[WorkerRecord]:
    """The incarnation is Down for good; `stop_attempts_of` is the same step for each job it worked on.

    The module's bound OtherCapacity is about its finite set of workers; a live fleet may lose its last one.
    """
    if worker.state is not WorkerState.UP:
        return refuse(Refusal.WORKER_NOT_UP)
    return Accepted(replace(worker, state=WorkerState.DOWN))


def stop_attempts_of(view: JobView, worker_id: WorkerId) -> JobView:
    """CrashWorker's effect on one job: attempts of that incarnation no longer run. Authority stays for the
    reaper.
    """
    stopped = tuple(
        replace(attempt, state=AttemptState.STOPPED)
        if attempt.worker == worker_id and attempt.state in (AttemptState.AUTHORIZED, AttemptState.EXECUTING)
        else attempt
        for attempt in view.attempts
    )
    return view if stopped == view.attempts else replace(view, attempts=stopped)
