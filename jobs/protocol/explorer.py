"""Breadth-first exploration of every state that the protocol can reach within bounds.

Every invariant is judged in every state, every action property on every step, and a state without a step is
a deadlock unless it is SystemQuiescent (the module's Done; its stutter is not counted as a step). No
symmetry is used and nothing is left out: the number of distinct states and the depth (the initial state is
at depth 1) are those that TLC finds.

A state is at most a few hundred bytes: one packed int, its number, its parent and the label of the step that
found it. The walk is one loop over `World.successors`; whatever costs is remembered below it.
"""

from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from jobs.protocol.bounds import Bounds
from jobs.protocol.decision import ACTIONS
from jobs.protocol.explorer_world import Component, State, World

DEADLOCK: Final = "Deadlock"


@dataclass(frozen=True, slots=True)
class Violation:
    """A property that is broken: in the state numbered `state`, or on the step `label` from it."""

    property: str
    state: int
    step: tuple[int, State] | None = None


@dataclass(slots=True)
class Exploration:
    """What was found. States are numbered in the order of discovery."""

    world: World
    numbers: dict[State, int]
    parents: "array[int]" = field(default_factory=lambda: array("q", [-1]))
    found_by: "array[int]" = field(default_factory=lambda: array("L", [0]))
    depth: int = 0
    steps_by_label: Counter[int] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    deadlocks: int = 0
    quiescent: int = 0
    complete: bool = True

    @property
    def distinct(self) -> int:
        return len(self.numbers)

    @property
    def transitions(self) -> dict[str, int]:
        """Steps by action, of all its instances; an action on jobs that never fired is there with 0."""
        counted = Counter(dict.fromkeys(ACTIONS, 0))
        for label, count in self.steps_by_label.items():
            counted[self.world.label(label).action] += count
        return dict(sorted(counted.items()))

    def path(self, number: int) -> list[int]:
        """State numbers from the initial state to `number`, by a shortest way."""
        path = [number]
        while self.parents[path[-1]] >= 0:
            path.append(self.parents[path[-1]])
        return path[::-1]


Watch = Callable[[Exploration, int], None]
"""Called after each level with what was found so far and how many states wait."""


def explore(
    bounds: Bounds,
    component: Component | None = None,
    *,
    watch: Watch | None = None,
    states_max: int | None = None,
    stop_at_first: bool = True,
) -> Exploration:
    """Walk the whole system within bounds, or up to the first violation, or up to `states_max` states."""
    world = World(bounds, component)
    first = world.initial()
    found = Exploration(world, {first: 0})
    level = [first]
    while level and found.complete:
        found.depth += 1
        level = _expand(found, level, stop_at_first)
        if watch is not None:
            watch(found, len(level))
        stopped = stop_at_first and found.violations
        if stopped or (states_max is not None and found.distinct >= states_max and level):
            found.complete = False
    return found


def _expand(found: Exploration, level: Iterable[State], stop_at_first: bool) -> list[State]:
    """Judge the states of one level, take every step from them, and return the states that this finds."""
    world, numbers, taken = found.world, found.numbers, found.steps_by_label
    parents, found_by, deeper = found.parents, found.found_by, list[State]()
    for state in level:
        number = numbers[state]
        if _broken_state(found, number, state):
            if stop_at_first:
                break
            continue
        stuck = True
        for label, after in world.successors(state):
            stuck = False
            taken[label] += 1
            if after not in numbers:
                numbers[after] = len(numbers)
                parents.append(number)
                found_by.append(label)
                deeper.append(after)
        if world.slices.broken_steps and _broken_steps(found, number, state) and stop_at_first:
            break
        if stuck and _deadlocked(found, number, state) and stop_at_first:
            break
    return deeper


def _broken_state(found: Exploration, number: int, state: State) -> bool:
    names = found.world.broken(state)
    found.violations += [Violation(name, number) for name in dict.fromkeys(names)]
    return bool(names)


def _broken_steps(found: Exploration, number: int, state: State) -> bool:
    known = len(found.violations)
    for label, after in found.world.successors(state):
        for name in dict.fromkeys(found.world.broken_steps(state, after)):
            found.violations.append(Violation(name, number, (label, after)))
    return len(found.violations) > known


def _deadlocked(found: Exploration, number: int, state: State) -> bool:
    if found.world.quiescent(state):
        found.quiescent += 1
        return False
    found.deadlocks += 1
    found.violations.append(Violation(DEADLOCK, number))
    return True
