"""A lease's life: RenewLease, RegrantLease, Tick, ExpireLease, ReleaseLease. A lease that expired is never
revived.
"""

from dataclasses import replace

from jobs.protocol.decision import Accepted, Decision, Refusal, Store, action, refuse
from jobs.protocol.records import JobView, LeaseRecord, Limits, Usage, WorkerRecord
from jobs.protocol.states import AttemptState, LeaseState, Phase, Service, WorkerState


@action("RenewLease", Store.COORDINATION)
def renew_lease(view: JobView, token: int, worker: WorkerRecord) -> Decision[JobView]:
    """Push the deadline of a lease that is still live."""
    lease = view.coordination.lease(token)
    attempt = view.attempt(token)
    if lease is None or lease.state is not LeaseState.LIVE:
        return refuse(Refusal.LEASE_NOT_LIVE)
    if lease.age == 0:
        return refuse(Refusal.LEASE_IS_FRESH)
    if not view.current_authority(token):
        return refuse(Refusal.NOT_CURRENT_AUTHORITY)
    if attempt is None or attempt.state is not AttemptState.EXECUTING:
        return refuse(Refusal.NOT_EXECUTING)
    if view.job.terminal:
        return refuse(Refusal.TERMINAL)
    if worker.state is not WorkerState.UP:
        return refuse(Refusal.WORKER_NOT_UP)
    if not worker.can_reach(Service.COORDINATION):
        return refuse(Refusal.UNREACHABLE)
    return Accepted(_with_lease(view, replace(lease, age=0)))


@action("RegrantLease", Store.COORDINATION)
def regrant_lease(
    view: JobView, token: int, worker: WorkerRecord, usage: Usage, limits: Limits
) -> Decision[JobView]:
    """Give a healthy attempt whose lease was lost with the CoordinationStore a live lease again."""
    lease = view.coordination.lease(token)
    attempt = view.attempt(token)
    if lease is None or lease.state is not LeaseState.LOST:
        return refuse(Refusal.LEASE_NOT_LOST)
    if not view.current_authority(token):
        return refuse(Refusal.NOT_CURRENT_AUTHORITY)
    if view.job.phase is not Phase.RUNNING:
        return refuse(Refusal.NOT_RUNNING)
    if attempt is None or attempt.state is not AttemptState.EXECUTING:
        return refuse(Refusal.NOT_EXECUTING)
    if worker.state is not WorkerState.UP:
        return refuse(Refusal.WORKER_NOT_UP)
    if not worker.can_reach(Service.COORDINATION) or not worker.can_reach(Service.DURABLE):
        return refuse(Refusal.UNREACHABLE)
    if usage.global_used >= limits.global_limit:
        return refuse(Refusal.NO_GLOBAL_PERMIT)
    return Accepted(_with_lease(view, LeaseRecord(token, LeaseState.LIVE)))


@action("Tick", Store.WORLD)
def tick(view: JobView, limits: Limits) -> Decision[JobView]:
    """One unit of the CoordinationStore's clock passes for this job's live lease and its reservation."""
    coordination = view.coordination
    leases = tuple(_older(lease, limits) for lease in coordination.leases)
    ages = coordination.reservation is not None and coordination.reservation_age < limits.reservation_limit
    if leases == coordination.leases and not ages:
        return refuse(Refusal.NOTHING_TO_TICK)
    age = coordination.reservation_age + (1 if ages else 0)
    return Accepted(view.with_coordination(leases=leases, reservation_age=age))


def _older(lease: LeaseRecord, limits: Limits) -> LeaseRecord:
    if lease.state is LeaseState.LIVE and lease.age < limits.lease_limit:
        return replace(lease, age=lease.age + 1)
    return lease


@action("ExpireLease", Store.COORDINATION)
def expire_lease(view: JobView, token: int, limits: Limits) -> Decision[JobView]:
    """A lease that was not renewed in time is over for good. Live progress may linger: it is a hint."""
    lease = view.coordination.lease(token)
    if lease is None or lease.state is not LeaseState.LIVE:
        return refuse(Refusal.LEASE_NOT_LIVE)
    if lease.age != limits.lease_limit:
        return refuse(Refusal.LEASE_NOT_LAPSED)
    return Accepted(_with_lease(view, LeaseRecord(token, LeaseState.EXPIRED)))


@action("ReleaseLease", Store.COORDINATION)
def release_lease(view: JobView, token: int) -> Decision[JobView]:
    """Give back the lease of an attempt that is over."""
    attempt = view.attempt(token)
    if not view.coordination.lease_is_live(token):
        return refuse(Refusal.LEASE_NOT_LIVE)
    stopped = attempt is not None and attempt.state in (AttemptState.STOPPED, AttemptState.COMMITTED)
    if not (stopped or not view.current_authority(token) or view.job.terminal):
        return refuse(Refusal.LEASE_STILL_NEEDED)
    return Accepted(_with_lease(view, LeaseRecord(token, LeaseState.EXPIRED)))


def _with_lease(view: JobView, lease: LeaseRecord) -> JobView:
    return replace(view, coordination=view.coordination.with_lease(lease))
