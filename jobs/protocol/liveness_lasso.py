"""A counterexample to a liveness property, as a run that can be told: a way, and a round that may be
repeated for ever.
"""

from collections.abc import Callable, Mapping, Set
from functools import partial
from typing import NamedTuple

from jobs.protocol.liveness_graph import Graph


class Lasso(NamedTuple):
    """States and the labels of the steps between them. A round without steps is one state where nothing
    happens.
    """

    way: list[int]
    way_labels: list[int]
    round: list[int]
    round_labels: list[int]


def lasso(graph: Graph, reached: Mapping[int, tuple[int, int] | None], fair: Set[int]) -> Lasso:
    """A way into `fair` by what was reached, and a round in it that does what fairness asks."""
    entry = min(fair)
    back = [entry]
    labels: list[int] = []
    while (step := reached[back[-1]]) is not None:
        labels.append(step[0])
        back.append(step[1])
    start = graph.found.path(back[-1])
    start_labels = [graph.found.found_by[state] for state in start[1:]]
    round_states, round_labels = _round(graph, entry, fair)
    return Lasso(start[:-1] + back[::-1], start_labels + labels[::-1], round_states, round_labels)


def _round(graph: Graph, entry: int, fair: Set[int]) -> tuple[list[int], list[int]]:
    """From `entry` back to it, on the way doing, or seeing disabled, all that fairness asks for."""
    states, labels = [entry], list[int]()
    owed = 0
    for state in fair:
        owed |= graph.enabled[state]
    owed &= ~_settled(graph, entry, 0)
    while owed:
        bit = owed & -owed
        path = _shortest(graph, states[-1], fair, partial(_settles, graph, bit))
        for label, state in path:
            labels.append(label)
            states.append(state)
            owed &= ~_settled(graph, state, graph.masks[label])
        owed &= ~bit
    for label, state in _shortest(graph, states[-1], fair, lambda state, mask: state == entry):
        labels.append(label)
        states.append(state)
    return states, labels


def _settled(graph: Graph, state: int, taken: int) -> int:
    """Constraints that are satisfied by a step that was taken, or, the weak ones, by being disabled here."""
    return taken | ~graph.enabled[state] & ~graph.constraints.strong


def _settles(graph: Graph, bit: int, state: int, taken: int) -> bool:
    return bool(_settled(graph, state, taken) & bit)


def _shortest(
    graph: Graph, start: int, inside: Set[int], arrived: Callable[[int, int], bool]
) -> list[tuple[int, int]]:
    """A shortest path inside, as labels and states, to the first step that has arrived; none if it starts
    there.
    """
    if arrived(start, 0):
        return []
    ways: dict[int, list[tuple[int, int]]] = {start: []}
    waiting = [start]
    for state in waiting:
        for label, target in graph.steps(state):
            if target not in inside:
                continue
            way = [*ways[state], (label, target)]
            if arrived(target, graph.masks[label]):
                return way
            if target not in ways:
                ways[target] = way
                waiting.append(target)
    return []
