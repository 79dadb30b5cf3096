"""The explored states as a graph in flat arrays, and the search for states where a run may stay for ever.

A run that is fair, and stays for ever among some states C, is possible exactly if C is strongly connected
(or one state, where it stutters) and for each constraint
* weak: in some state of C the action is disabled, or some step inside C takes it;
* strong: in no state of C the action is enabled, or some step inside C takes it.
A component that misses a weak constraint has no part that satisfies it: every part has fewer steps, and all
its states are enabled. One that misses a strong constraint may have such a part, without the states where
the action is enabled: those are removed and what is left is searched again (the emptiness check of Streett
automata).
"""

from array import array
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from jobs.protocol.explorer import Exploration
from jobs.protocol.liveness_fairness import Constraints


class Edges(NamedTuple):
    """Steps of all states: those of state n are at first[n]..first[n + 1]."""

    first: "array[int]"
    targets: "array[int]"
    labels: "array[int]"


class Graph:
    """States by number; the steps from each; the constraints that are enabled in each and satisfied by each
    step.
    """

    def __init__(self, found: Exploration, constraints: Constraints) -> None:
        if not found.complete:
            raise ValueError("liveness needs the whole graph")
        self.found, self.constraints = found, constraints
        self.edges = _edges(found)
        self.masks = {label: constraints.of(found.world.label(label)) for label in set(self.edges.labels)}
        self.enabled = [self._enabled(state) for state in range(found.distinct)]

    def steps(self, state: int) -> Iterator[tuple[int, int]]:
        """Label and target of each step."""
        first, targets, labels = self.edges
        for position in range(first[state], first[state + 1]):
            yield labels[position], targets[position]

    def _enabled(self, state: int) -> int:
        enabled = 0
        for label, target in self.steps(state):
            if target != state:
                enabled |= self.masks[label]
        return enabled

    def reachable(self, starts: Iterable[int], allowed: bytearray) -> dict[int, tuple[int, int] | None]:
        """Allowed states reached from `starts` through allowed ones, each with the label and state it was
        reached by.
        """
        reached: dict[int, tuple[int, int] | None] = {state: None for state in starts if allowed[state]}
        waiting = list(reached)
        for state in waiting:
            for label, target in self.steps(state):
                if allowed[target] and target not in reached:
                    reached[target] = (label, state)
                    waiting.append(target)
        return reached

    def fair_part(self, states: Iterable[int]) -> set[int] | None:
        """Some states among these where a fair run may stay for ever, if there are any."""
        candidates = [set(states)]
        while candidates:
            for part in self._components(candidates.pop()):
                left = self._judge(part)
                if left is not None and len(left) == len(part):
                    return left
                if left:
                    candidates.append(left)
        return None

    def _judge(self, part: set[int]) -> set[int] | None:
        """The part itself if it is fair; what is left of it to search; or None if no part of it is fair."""
        always, ever, taken = -1, 0, 0
        for state in part:
            always &= self.enabled[state]
            ever |= self.enabled[state]
            for label, target in self.steps(state):
                if target in part:
                    taken |= self.masks[label]
        strong = self.constraints.strong
        if always & ~strong & ~taken:
            return None
        starved = ever & strong & ~taken
        return {state for state in part if not self.enabled[state] & starved}

    def _components(self, states: set[int]) -> Iterator[set[int]]:
        """Strongly connected components of the graph between these states."""
        return _Components(self, states).all()


class _Components:
    """Tarjan's algorithm, without recursion."""

    def __init__(self, graph: Graph, states: set[int]) -> None:
        self._graph, self._states = graph, states
        self._order: dict[int, int] = {}
        self._low: dict[int, int] = {}
        self._open: dict[int, None] = {}
        self._work: list[tuple[int, Iterator[int]]] = []

    def all(self) -> Iterator[set[int]]:
        for root in self._states:
            if root not in self._order:
                self._enter(root)
                yield from self._finish()

    def _enter(self, state: int) -> None:
        self._order[state] = self._low[state] = len(self._order)
        self._open[state] = None
        inner = [target for _, target in self._graph.steps(state) if target in self._states]
        self._work.append((state, iter(inner)))

    def _finish(self) -> Iterator[set[int]]:
        order, low, work = self._order, self._low, self._work
        while work:
            state, targets = work[-1]
            for target in targets:
                if target not in order:
                    self._enter(target)
                    break
                if target in self._open:
                    low[state] = min(low[state], order[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[state])
                if low[state] == order[state]:
                    yield self._close(state)

    def _close(self, root: int) -> set[int]:
        component: set[int] = set()
        while root not in component:
            component.add(self._open.popitem()[0])
        return component


def _edges(found: Exploration) -> Edges:
    first, targets, labels = array("L", [0]), array("L"), array("L")
    for state in found.numbers:
        for label, after in found.world.successors(state):
            targets.append(found.numbers[after])
            labels.append(label)
        first.append(len(targets))
    return Edges(first, targets, labels)
