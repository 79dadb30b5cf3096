"""The world around the jobs: workers with their links, and the fault budgets that bound an exploration.

The module's bounds on faults (FaultsEnabled, FaultServices, OtherCapacity, the budgets) are here and not in
the actions: a real fleet is not bound by them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from jobs.protocol.bounds import Bounds
from jobs.protocol.decision import ACTIONS
from jobs.protocol.invariants import worker_type_ok
from jobs.protocol.records import WorkerRecord
from jobs.protocol.states import Service, WorkerState


@dataclass(frozen=True, slots=True)
class Environment:
    """Workers with their links, and what is spent of the fault budgets."""

    workers: tuple[WorkerRecord, ...]
    coord_losses: int = 0
    partitions: int = 0

    def with_worker(self, worker: WorkerRecord) -> "Environment":
        workers = tuple(worker if held.id == worker.id else held for held in self.workers)
        return replace(self, workers=workers)

    def other_capacity(self, worker_id: str) -> bool:
        """OtherCapacity(w)."""
        return any(
            worker.id != worker_id and worker.state in (WorkerState.UP, WorkerState.UNUSED)
            for worker in self.workers
        )


EnvironmentStep = tuple[str, dict[str, str | int], Environment]


def initial_environment(bounds: Bounds) -> Environment:
    """Init, for the workers."""
    initial = bounds.worker_ids[: bounds.initial_workers]
    return Environment(
        tuple(
            WorkerRecord(worker, WorkerState.UP if worker in initial else WorkerState.UNUSED)
            for worker in bounds.worker_ids
        )
    )


def environment_steps(environment: Environment, bounds: Bounds) -> Iterator[EnvironmentStep]:
    """Steps that touch no job: StartIncarnation, DropLink, RestoreLink."""
    for worker in environment.workers:
        started = ACTIONS["StartIncarnation"].function(worker)
        if started.accepted:
            yield "StartIncarnation", {"worker": worker.id}, environment.with_worker(started.value)
        for service in Service:
            yield from _link_steps(environment, bounds, worker, service)


def _link_steps(
    environment: Environment, bounds: Bounds, worker: WorkerRecord, service: Service
) -> Iterator[EnvironmentStep]:
    params: dict[str, str | int] = {"worker": worker.id, "service": service.value}
    if service in bounds.fault_services and environment.partitions < bounds.partitions:
        dropped = ACTIONS["DropLink"].function(worker, service)
        if dropped.accepted:
            after = environment.with_worker(dropped.value)
            yield "DropLink", params, replace(after, partitions=environment.partitions + 1)
    restored = ACTIONS["RestoreLink"].function(worker, service)
    if restored.accepted:
        yield "RestoreLink", params, environment.with_worker(restored.value)


def crashes(environment: Environment, bounds: Bounds) -> Iterator[tuple[str, Environment]]:
    """CrashWorker: which workers may crash, and the environment after it."""
    if not bounds.faults_enabled:
        return
    for worker in environment.workers:
        down = ACTIONS["CrashWorker"].function(worker)
        if down.accepted and environment.other_capacity(worker.id):
            yield worker.id, environment.with_worker(down.value)


def coordination_loss(environment: Environment, bounds: Bounds) -> Environment | None:
    """LoseCoordinationState: the environment after it, if one more is allowed."""
    if Service.COORDINATION not in bounds.fault_services or environment.coord_losses >= bounds.coord_losses:
        return None
    return replace(environment, coord_losses=environment.coord_losses + 1)


def environment_type_ok(environment: Environment, bounds: Bounds) -> bool:
    """TypeOK, for what is not of one job."""
    return (
        environment.coord_losses <= bounds.coord_losses
        and environment.partitions <= bounds.partitions
        and all(worker_type_ok(worker) for worker in environment.workers)
    )
