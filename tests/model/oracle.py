"""An independent oracle: docs/spec/RemoraX.tla transcribed line by line, as slow and literal as the text
itself.

It shares no code with the protocol, not even its enumerations: states are dicts from the module's variable
names to values spelled as in the module, an attempt is (job, token), a conjunction is a list of conditions
in the module's order. Reachable sets, not only their sizes, are compared with the explorer's. TLC found the
same sizes.
"""

from collections.abc import Iterator
from typing import Any

from tests.model.oracle_attempts import of_attempts
from tests.model.oracle_jobs import of_jobs
from tests.model.oracle_state import Constants, State, Step, frozen, initial
from tests.model.oracle_world import of_intents, of_the_world


def reachable(c: Constants, depth_max: int | None = None) -> tuple[dict[Any, int], dict[str, int]]:
    """Every reachable state (down to a depth) with its depth, and the steps taken by action."""
    first = initial(c)
    depths = {frozen(first): 1}
    level, depth = [first], 1
    taken: dict[str, int] = {}
    while level and depth != depth_max:
        depth += 1
        deeper = []
        for s in level:
            for action, after in following(c, s):
                taken[action] = taken.get(action, 0) + 1
                key = frozen(after)
                if key not in depths:
                    depths[key] = depth
                    deeper.append(after)
        level = deeper
    return depths, taken


def following(c: Constants, s: State) -> Iterator[Step]:
    """Next, but for Done."""
    yield from of_jobs(c, s)
    yield from of_attempts(c, s)
    yield from of_the_world(c, s)
    yield from of_intents(c, s)
