"""The explorer finds just the states that the module has: counted against TLC, compared one by one with the
oracle.
"""

import tracemalloc

import pytest

from jobs.protocol.bounds import Bounds
from tests.model.as_module import as_module, constants, explored, named
from tests.model.oracle import reachable

COORDINATION = frozenset({"coordination"})
# Distinct states and depth that TLC found for docs/spec/RemoraX.tla. A changed count is a changed protocol.
COUNTED_BY_TLC = [
    (Bounds(), 1_435, 16),
    (Bounds(faults=COORDINATION, coord_losses=1), 3_237, 17),
    (Bounds(max_attempts=2, local_limit=2, global_limit=2), 41_443, 28),
    (Bounds(credential_intents=1), 12_915, 21),
    (Bounds(credential_intents=2), 116_235, 26),
    (Bounds(workers=2, faults=frozenset({"crash"})), 9_890, 18),
    (Bounds(workers=2, initial_workers=2, faults=frozenset({"durable", "target"}), partitions=1), 67_914, 19),
    (Bounds(max_progress=2, lease_limit=2, reservation_limit=2), 5_117, 18),
    (Bounds(workers=2, max_progress=2, global_limit=2, faults=COORDINATION, coord_losses=1), 60_240, 20),
    (
        Bounds(faults=frozenset({"coordination", "durable", "target"}), coord_losses=1, partitions=2),
        80_925,
        21,
    ),
]
COUNTED_BY_TLC_LARGE = [
    (Bounds(jobs=2), 931_381, 31),
    (
        Bounds(max_progress=3, lease_limit=2, faults=frozenset({"coordination", "target"}), coord_losses=2,
               partitions=1),
        177_505,
        23,
    ),
]  # fmt: skip
SMALL = [
    Bounds(),
    Bounds(faults=COORDINATION, coord_losses=2),
    Bounds(max_progress=2, lease_limit=2, reservation_limit=2),
]


@pytest.mark.parametrize(("bounds", "distinct", "depth"), COUNTED_BY_TLC, ids=named)
def test_the_explorer_finds_the_states_that_tlc_finds(bounds: Bounds, distinct: int, depth: int) -> None:
    found = explored(bounds)
    assert (found.distinct, found.depth) == (distinct, depth)
    assert found.complete
    assert not found.violations
    assert not found.deadlocks
    assert found.quiescent


@pytest.mark.slow
@pytest.mark.parametrize(("bounds", "distinct", "depth"), COUNTED_BY_TLC_LARGE, ids=named)
def test_the_explorer_finds_the_states_that_tlc_finds_in_larger_systems(
    bounds: Bounds, distinct: int, depth: int
) -> None:
    found = explored(bounds)
    assert (found.distinct, found.depth, found.violations) == (distinct, depth, [])


@pytest.mark.parametrize("bounds", SMALL, ids=named)
def test_the_explorer_reaches_exactly_the_states_and_steps_of_the_oracle(bounds: Bounds) -> None:
    found = explored(bounds)
    depths, steps = reachable(constants(bounds))
    assert {as_module(found.world, state) for state in found.numbers} == depths.keys()
    assert max(depths.values()) == found.depth
    assert {name: count for name, count in found.transitions.items() if count} == steps


@pytest.mark.parametrize(
    "bounds",
    [
        Bounds(jobs=2),
        Bounds(jobs=2, credential_intents=1),
        Bounds(workers=2, faults=frozenset({"crash"})),
        Bounds(faults=frozenset({"coordination", "durable", "target"}), partitions=1),
        Bounds(jobs=2, workers=2, initial_workers=1, max_attempts=2, local_limit=2, global_limit=3,
               faults=frozenset({"coordination", "durable", "target"}), coord_losses=1, partitions=1),
    ],
    ids=named,
)  # fmt: skip
def test_several_jobs_and_workers_move_as_the_oracle_says_level_by_level(bounds: Bounds) -> None:
    """Too many states for the oracle to walk them all: the first thousands, whole levels of them."""
    found = explored(bounds, states_max=2_500)
    depths, _ = reachable(constants(bounds), depth_max=found.depth + 1)
    assert {as_module(found.world, state) for state in found.numbers} == depths.keys()


def test_a_state_takes_at_most_a_few_hundred_bytes() -> None:
    tracemalloc.start()
    try:
        found = explored(Bounds(max_attempts=2, local_limit=2, global_limit=2), states_max=6_000)
        bytes_used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert bytes_used / found.distinct <= 600
