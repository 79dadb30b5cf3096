"""The whole state: each job's slice, the workers with their links, the fault budgets, and components beside
the jobs.

A state is one int: the numbers of its parts, packed. So it is small, hashes fast, and a step is a
subtraction and an addition. What happens to many jobs at once (Tick, CrashWorker, LoseCoordinationState) is
put together here.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from jobs.protocol.bounds import Bounds
from jobs.protocol.explorer_environment import (
    Environment,
    coordination_loss,
    crashes,
    environment_steps,
    environment_type_ok,
    initial_environment,
)
from jobs.protocol.explorer_slices import REFUSED, Flat, Slices
from jobs.protocol.explorer_steps import Label, Labels
from jobs.protocol.invariants import FLEET_INVARIANTS
from jobs.protocol.records import JobView, Usage, WorkerRecord

ENVIRONMENT_BITS: Final = 20
COMPONENT_BITS: Final = 16
SLICE_BITS: Final = 24
ENVIRONMENT_MASK: Final = (1 << ENVIRONMENT_BITS) - 1
COMPONENT_MASK: Final = (1 << COMPONENT_BITS) - 1
SLICE_MASK: Final = (1 << SLICE_BITS) - 1
LABEL_BITS: Final = 16
State = int


class Component(Protocol):
    """A part of the state that no action on a job reads or changes: in the whole of Remora, the credential
    intents.
    """

    def initial(self) -> Hashable: ...
    def steps(self, state: Any) -> Iterable[tuple[str, Mapping[str, str | int], Hashable]]: ...
    def broken(self, state: Any) -> list[str]: ...
    def quiescent(self, state: Any) -> bool: ...
    def variables(self, state: Any) -> Mapping[str, object]: ...


class Surroundings(NamedTuple):
    """What is remembered of one environment: its workers, each with the number of its record, and where it
    may go.
    """

    workers: tuple[tuple[int, WorkerRecord], ...]
    steps: Flat
    crashes: tuple[tuple[int, str, int], ...]  # label, worker, environment after
    loss: tuple[int, int] | None  # label, environment after
    type_ok: bool


class Numbering:
    """Values numbered in the order in which they are met."""

    def __init__(self, bits: int) -> None:
        self._most = (1 << bits) - 1
        self._numbers: dict[Hashable, int] = {}
        self.values: list[Any] = []

    def number(self, value: Hashable) -> int:
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = len(self.values)
            if found > self._most:
                raise OverflowError("too many different parts of one kind to number: choose smaller bounds")
            self.values.append(value)
        return found


class World:
    """The transition system within bounds: Init, Next, and what must hold of a state."""

    def __init__(self, bounds: Bounds, component: Component | None = None) -> None:
        self.bounds, self.component, self.labels = bounds, component, Labels()
        varied = bounds.jobs > 1 or bounds.faults_enabled or bounds.initial_workers < bounds.workers
        self.slices = Slices(bounds, self.labels, remember=varied or component is not None)
        self._environments, self._components = Numbering(ENVIRONMENT_BITS), Numbering(COMPONENT_BITS)
        self._records = Numbering(12)
        self._surroundings: dict[int, Surroundings] = {}
        self._beside: dict[int, Flat] = {}
        self._permits: dict[int, list[str]] = {}
        self._tick = self.labels.number("Tick")
        first = ENVIRONMENT_BITS + COMPONENT_BITS
        self._shifts = [first + SLICE_BITS * position for position in range(bounds.jobs)]

    def initial(self) -> State:
        """Init."""
        environment = self._environments.number(initial_environment(self.bounds))
        beside = self._components.number(None if self.component is None else self.component.initial())
        return self._packed(environment, beside, [self.slices.number(JobView())] * self.bounds.jobs)

    def _packed(self, environment: int, beside: int, numbers: Sequence[int]) -> State:
        state = environment | beside << ENVIRONMENT_BITS
        for number, shift in zip(numbers, self._shifts, strict=True):
            state |= number << shift
        return state

    def numbers(self, state: State) -> list[int]:
        """The number of each job's slice."""
        return [state >> shift & SLICE_MASK for shift in self._shifts]

    def successors(self, state: State) -> Iterator[tuple[int, State]]:
        """Next: every step from this state, as its label and the state after it."""
        slices, numbers = self.slices, self.numbers(state)
        surroundings = self._surroundings_of(state & ENVIRONMENT_MASK)
        permits = self._permits_in_use(numbers)
        for position, (number, shift) in enumerate(zip(numbers, self._shifts, strict=True), start=1):
            others, tag = state - (number << shift), position << LABEL_BITS
            found = [slices.of_view(number)]
            for (record, worker), usage in zip(surroundings.workers, permits, strict=True):
                found.append(slices.of_worker(number, record, worker))
                found.append(slices.of_permits(number, record, worker, usage))
            for flat in found:
                for label, after in _pairs(flat):
                    yield label | tag, others + (after << shift)
        yield from self._steps_of_all(state, numbers, surroundings)

    def _steps_of_all(
        self, state: State, numbers: Sequence[int], surroundings: Surroundings
    ) -> Iterator[tuple[int, State]]:
        slices, environment = self.slices, state & ENVIRONMENT_MASK
        beside = state >> ENVIRONMENT_BITS & COMPONENT_MASK
        ticked = [slices.ticked(number) for number in numbers]
        if any(number != REFUSED for number in ticked):
            aged = [old if new == REFUSED else new for old, new in zip(numbers, ticked, strict=True)]
            yield self._tick, self._packed(environment, beside, aged)
        for label, after in _pairs(surroundings.steps):
            yield label, state - environment + after
        for label, worker, after in surroundings.crashes:
            stopped = [slices.stopped(number, worker) for number in numbers]
            yield label, self._packed(after, beside, stopped)
        if surroundings.loss is not None:
            label, after = surroundings.loss
            yield label, self._packed(after, beside, [slices.lost(number) for number in numbers])
        for label, after in _pairs(self._steps_beside(beside)):
            yield label, state + (after - beside << ENVIRONMENT_BITS)

    def _permits_in_use(self, numbers: Sequence[int]) -> list[Usage]:
        usage = self.slices.usage
        packed = sum([usage[number] for number in numbers])
        return self.slices.unpacked_usages(packed)

    def _steps_beside(self, number: int) -> Flat:
        found = self._beside.get(number)
        if found is None:
            flat: list[int] = []
            component, before = self.component, self._components.values[number]
            for name, params, after in () if component is None else component.steps(before):
                flat += (self.labels.number(name, **params), self._components.number(after))
            found = self._beside[number] = tuple(flat)
        return found

    def _surroundings_of(self, number: int) -> Surroundings:
        found = self._surroundings.get(number)
        if found is None:
            found = self._surroundings[number] = self._look_around(self._environments.values[number])
        return found

    def _look_around(self, environment: Environment) -> Surroundings:
        number, label = self._environments.number, self.labels.number
        steps: list[int] = []
        for name, params, moved in environment_steps(environment, self.bounds):
            steps += (label(name, **params), number(moved))
        after_loss = coordination_loss(environment, self.bounds)
        return Surroundings(
            workers=tuple((self._records.number(worker), worker) for worker in environment.workers),
            steps=tuple(steps),
            crashes=tuple(
                (label("CrashWorker", worker=worker), worker, number(after))
                for worker, after in crashes(environment, self.bounds)
            ),
            loss=None if after_loss is None else (label("LoseCoordinationState"), number(after_loss)),
            type_ok=environment_type_ok(environment, self.bounds),
        )

    def broken(self, state: State) -> list[str]:
        """The invariants that this state breaks."""
        numbers = self.numbers(state)
        names = [] if self._surroundings_of(state & ENVIRONMENT_MASK).type_ok else ["TypeOK"]
        if self.slices.broken:
            names += [name for number in numbers for name in self.slices.broken.get(number, ())]
        names += self._broken_by_permits(numbers)
        if self.component is not None:
            names += self.component.broken(
                self._components.values[state >> ENVIRONMENT_BITS & COMPONENT_MASK]
            )
        return names

    def _broken_by_permits(self, numbers: Sequence[int]) -> list[str]:
        packed = sum([self.slices.usage[number] for number in numbers])
        found = self._permits.get(packed)
        if found is None:
            usages, limits = self.slices.unpacked_usages(packed), self.bounds.limits
            found = self._permits[packed] = [
                name for name, holds in FLEET_INVARIANTS.items() if not holds(usages, limits)
            ]
        return found

    def broken_steps(self, before: State, after: State) -> list[str]:
        """The action properties that this step breaks."""
        if not self.slices.broken_steps:
            return []
        pairs = zip(self.numbers(before), self.numbers(after), strict=True)
        return [name for pair in pairs for name in self.slices.broken_steps.get(pair, ())]

    def quiescent(self, state: State) -> bool:
        """SystemQuiescent."""
        slices = self.slices
        return all(slices.quiescent[number] for number in self.numbers(state)) and (
            self.component is None
            or self.component.quiescent(self._components.values[state >> ENVIRONMENT_BITS & COMPONENT_MASK])
        )

    def views(self, state: State) -> list[JobView]:
        return [self.slices.views[number] for number in self.numbers(state)]

    def environment(self, state: State) -> Environment:
        environment: Environment = self._environments.values[state & ENVIRONMENT_MASK]
        return environment

    def beside(self, state: State) -> Any:
        """The component's own state."""
        return self._components.values[state >> ENVIRONMENT_BITS & COMPONENT_MASK]

    def label(self, number: int) -> Label:
        """The action instance that a step's label stands for, its job first."""
        label, job = self.labels.all[number & (1 << LABEL_BITS) - 1], number >> LABEL_BITS
        if job == 0:
            return label
        return Label(label.action, (("job", self.bounds.job_ids[job - 1]), *label.params))


def _pairs(flat: Flat) -> Iterator[tuple[int, int]]:
    step = iter(flat)
    return zip(step, step, strict=True)
