"""A violation told: the shortest way there, action by action, with the variables that each changed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from jobs.protocol.explorer import Exploration, Violation
from jobs.protocol.explorer_steps import Label
from jobs.protocol.explorer_world import State, World
from jobs.protocol.records import JobView, WorkerRecord
from jobs.protocol.states import Service


@dataclass(frozen=True, slots=True)
class Told:
    """One step of a trace. `changed` has each variable's value before and after; None is absence."""

    label: Label
    changed: Mapping[str, tuple[Any, Any]]

    def as_dict(self) -> dict[str, Any]:
        return {
            "action": self.label.action,
            "params": dict(self.label.params),
            "changed": {name: list(values) for name, values in self.changed.items()},
        }


def trace(found: Exploration, violation: Violation) -> list[Told]:
    """A shortest trace that ends in the violation."""
    states = list(found.numbers)
    path = found.path(violation.state)
    walked = [states[number] for number in path]
    labels = [found.found_by[number] for number in path[1:]]
    if violation.step is not None:
        label, after = violation.step
        labels.append(label)
        walked.append(after)
    return tell(found.world, walked, labels)


def tell(world: World, states: Sequence[State], labels: Sequence[int]) -> list[Told]:
    """The steps between these states."""
    steps = zip(states, labels, states[1:], strict=False)
    return [Told(world.label(label), difference(world, before, after)) for before, label, after in steps]


def difference(world: World, before: State, after: State) -> dict[str, tuple[Any, Any]]:
    """The variables that differ between two states."""
    was, now = variables(world, before), variables(world, after)
    names = dict.fromkeys((*was, *now))
    return {name: (was.get(name), now.get(name)) for name in names if was.get(name) != now.get(name)}


def variables(world: World, state: State) -> dict[str, Any]:
    """Every variable of a state by name, e.g. j1.attempt.2.state."""
    values: dict[str, Any] = {}
    for job, view in zip(world.bounds.job_ids, world.views(state), strict=True):
        values.update(_of_job(job, view))
    environment = world.environment(state)
    for worker in environment.workers:
        values.update(_of_worker(worker))
    values["coord_losses"], values["partitions"] = environment.coord_losses, environment.partitions
    if world.component is not None:
        values.update(world.component.variables(world.beside(state)))
    return values


def _of_job(job: str, view: JobView) -> Iterator[tuple[str, Any]]:
    yield from _of_record(f"{job}.job", view.job)
    for attempt in view.attempts:
        yield from _of_record(f"{job}.attempt.{attempt.token}", attempt, "token")
    yield from _of_record(f"{job}.coordination", view.coordination, "leases")
    for lease in view.coordination.leases:
        yield from _of_record(f"{job}.lease.{lease.token}", lease, "token")


def _of_record(prefix: str, record: Any, *left_out: str) -> Iterator[tuple[str, Any]]:
    for field in fields(record):
        if field.name not in left_out:
            yield f"{prefix}.{field.name}", getattr(record, field.name)


def _of_worker(worker: WorkerRecord) -> Iterator[tuple[str, Any]]:
    yield f"{worker.id}.state", worker.state
    for service, link in zip(Service, worker.links, strict=True):
        yield f"{worker.id}.link.{service}", link
