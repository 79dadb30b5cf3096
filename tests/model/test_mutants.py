"""The protocol broken in many ways, one at a time: the explorer notices each, and the few that nobody could
notice are named.
"""

from functools import cache

import pytest

from credentials.exploration import FAIRNESS
from jobs.protocol.bounds import Bounds
from jobs.protocol.liveness import check_liveness
from tests.model.as_module import explored
from tests.model.mutants import COUNT, Mutant, broken
from tests.model.mutants_of_dispatch import DISPATCH_AND_LEASES, EQUIVALENT
from tests.model.mutants_of_work import WORK_AND_ENDS

MUTANTS = [*DISPATCH_AND_LEASES, *WORK_AND_ENDS]
Walked = tuple[int, int, dict[str, int]]


def walked(bounds: Bounds) -> Walked:
    found = explored(bounds)
    return found.distinct, found.depth, found.transitions


@cache
def walked_unbroken(bounds: Bounds) -> Walked:
    return walked(bounds)


def noticed(mutant: Mutant) -> set[str]:
    """The properties that break, or COUNT if none does but the states or steps are not the module's."""
    with broken(mutant):
        found = explored(mutant.bounds)
        names = {violation.property for violation in found.violations}
        if not names and mutant.caught_by.startswith("Eventually"):
            names = {run.about.action for run in check_liveness(found, FAIRNESS)}
        walk = found.distinct, found.depth, found.transitions
    if not names and walk != walked_unbroken(mutant.bounds):
        return {COUNT}
    return names


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_broken_protocol_is_noticed(mutant: Mutant) -> None:
    assert mutant.caught_by in noticed(mutant)


def test_most_mutants_break_a_property_and_not_only_a_count() -> None:
    assert sum(mutant.caught_by != COUNT for mutant in MUTANTS) >= 40


@pytest.mark.parametrize(("mutant", "why"), EQUIVALENT, ids=str)
def test_what_nobody_can_notice_changes_no_state_and_no_step(mutant: Mutant, why: str) -> None:
    unbroken = walked_unbroken(mutant.bounds)
    with broken(mutant):
        assert walked(mutant.bounds) == unbroken, why


def test_a_mutant_is_gone_when_it_was_tried() -> None:
    mutant = MUTANTS[0]
    before = walked(mutant.bounds)
    with broken(mutant):
        assert walked(mutant.bounds) != before
    assert walked(mutant.bounds) == before
