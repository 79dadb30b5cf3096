"""Ways to break the protocol, one at a time, and what is expected to notice each.

A mutant is one function with one piece of its text exchanged. It is noticed by an invariant, an action
property, a deadlock, a liveness property, or (`COUNT`) by its states and steps, which are no longer the
module's: a guard whose loss breaks no invariant is in the module for the sake of what jobs need, not of
safety.
"""

import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from credentials import protocol as credentials
from jobs.protocol import decision
from jobs.protocol.bounds import Bounds

COUNT = "states and steps"
ONE = Bounds()
TWO_ATTEMPTS = Bounds(max_attempts=2)
ZOMBIES = Bounds(max_attempts=2, local_limit=2)
ROOMY = Bounds(max_attempts=2, local_limit=2, global_limit=2)
PROGRESS = Bounds(max_progress=2)
LOSSES = Bounds(faults=frozenset({"coordination"}), coord_losses=1)
ROOMY_LOSSES = Bounds(
    max_attempts=2, local_limit=2, global_limit=2, faults=frozenset({"coordination"}), coord_losses=1
)
TWO_JOBS = Bounds(jobs=2)
TWO_JOBS_ROOMY = Bounds(jobs=2, global_limit=2)
TWO_JOBS_LOSSES = Bounds(jobs=2, local_limit=3, faults=frozenset({"coordination"}), coord_losses=1)
CRASHES = Bounds(workers=2, faults=frozenset({"crash"}))
CUT = Bounds(faults=frozenset({"coordination", "durable", "target"}), partitions=1)
INTENT = Bounds(credential_intents=1)


@dataclass(frozen=True)
class Mutant:
    """`old` becomes `new` in the text of `function`; then `caught_by` breaks within `bounds`."""

    function: Callable[..., Any]
    old: str
    new: str
    bounds: Bounds
    caught_by: str

    def __str__(self) -> str:
        old, new = " ".join(self.old.split()), " ".join(self.new.split())
        return f"{self.function.__name__}: {old} -> {new or 'nothing'}"


def dropped(function: Callable[..., Any], condition: str, bounds: Bounds, caught_by: str) -> Mutant:
    """The guard with this condition never refuses."""
    return Mutant(function, f"if {condition}:", "if False:", bounds, caught_by)


@contextmanager
def broken(mutant: Mutant) -> Iterator[None]:
    """The protocol with the mutant in the function's place, for whoever calls it by its module or by its
    action's name.
    """
    module, name = inspect.getmodule(mutant.function), mutant.function.__name__
    assert module is not None
    text = textwrap.dedent(inspect.getsource(mutant.function))
    text = text[text.index(f"def {name}(") :]
    assert text.count(mutant.old) == 1, f"{name} has {text.count(mutant.old)} times: {mutant.old}"
    made: dict[str, Any] = {}
    exec(compile(text.replace(mutant.old, mutant.new), module.__name__, "exec"), module.__dict__, made)  # noqa: S102
    registries: tuple[dict[str, Any], ...] = (decision.ACTIONS, credentials.ACTIONS)
    replaced = [
        (registry, action, spec)
        for registry in registries
        for action, spec in registry.items()
        if spec.function is mutant.function
    ]
    setattr(module, name, made[name])
    for registry, action, spec in replaced:
        registry[action] = spec._replace(function=made[name])
    try:
        yield
    finally:
        setattr(module, name, mutant.function)
        for registry, action, spec in replaced:
            registry[action] = spec
