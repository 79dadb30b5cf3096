"""What the world does to the protocol: a wiped CoordinationStore and cut links. Only an explorer calls
these.
"""

from dataclasses import replace

from jobs.protocol.decision import Accepted, Decision, Refusal, Store, action, refuse
from jobs.protocol.records import CoordinationRecord, JobView, WorkerRecord
from jobs.protocol.states import LeaseState, LinkState, Service, WorkerState


@action("LoseCoordinationState", Store.WORLD)
def lose_coordination_state(view: JobView) -> JobView:
    """Everything the CoordinationStore held of one job is gone; a live lease is lost, not expired."""
    leases = tuple(
        replace(lease, state=LeaseState.LOST if lease.state is LeaseState.LIVE else lease.state, age=0)
        for lease in view.coordination.leases
    )
    return replace(view, coordination=CoordinationRecord(leases=leases))


@action("DropLink", Store.WORLD)
def drop_link(worker: WorkerRecord, service: Service) -> Decision[WorkerRecord]:
    """A partition between one worker and one service."""
    if worker.state is not WorkerState.UP:
        return refuse(Refusal.WORKER_NOT_UP)
    if not worker.can_reach(service):
        return refuse(Refusal.LINK_ALREADY_DOWN)
    return Accepted(worker.with_link(service, LinkState.DOWN))


@action("RestoreLink", Store.WORLD)
def restore_link(worker: WorkerRecord, service: Service) -> Decision[WorkerRecord]:
    """The partition heals."""
    if worker.can_reach(service):
        return refuse(Refusal.LINK_NOT_DOWN)
    return Accepted(worker.with_link(service, LinkState.RECOVERED))
