"""The pure core: every reachable state of one intent, what holds there, and why each guard is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from credentials.protocol import (
    ACTIONS,
    FINAL_STATES,
    INVARIANTS,
    Accepted,
    Action,
    Decision,
    IntentRecord,
    IntentState,
    VaultState,
    final_states_are_immutable,
)

NAMES = {
    "PrepareCredentialIntent",
    "BeginCredentialWrite",
    "CompleteCredentialWrite",
    "RecordCredentialWrite",
    "FenceFailedCredentialWrite",
    "CommitCredentialVersion",
    "ClaimCredentialCleanup",
    "DestroyClaimedCredentialSecret",
    "AbandonFencedCredentialIntent",
}
Steps = dict[tuple[IntentRecord, str], IntentRecord]
FUNCTIONS: dict[str, Action] = {name: spec.function for name, spec in ACTIONS.items()}


def walk(functions: Mapping[str, Action]) -> Steps:
    """Every step from every state that can be reached."""
    steps: Steps = {}
    waiting, seen = [IntentRecord()], {IntentRecord()}
    while waiting:
        before = waiting.pop()
        for name, function in functions.items():
            decision = function(before)
            if isinstance(decision, Accepted):
                steps[before, name] = decision.value
                if decision.value not in seen:
                    seen.add(decision.value)
                    waiting.append(decision.value)
    return steps


def broken(steps: Steps) -> set[str]:
    found = {
        name for (_, _), after in steps.items() for name, holds in INVARIANTS.items() if not holds(after)
    }
    if not all(final_states_are_immutable(before, after) for (before, _), after in steps.items()):
        found.add("FinalStatesAreImmutable")
    return found


def test_every_action_of_the_module_is_here_once_and_fires() -> None:
    assert set(ACTIONS) == NAMES
    assert {name for _, name in walk(FUNCTIONS)} == NAMES


def test_the_reachable_states_are_nine_and_all_hold() -> None:
    """A changed number is a changed protocol."""
    steps = walk(FUNCTIONS)
    assert len({IntentRecord(), *steps.values()}) == 9
    assert len(steps) == 10
    assert broken(steps) == set()


def test_from_every_state_an_end_can_be_reached() -> None:
    steps = walk(FUNCTIONS)
    ending = {state for state in {IntentRecord(), *steps.values()} if state.state in FINAL_STATES}
    while more := {before for (before, _), after in steps.items() if after in ending} - ending:
        ending |= more
    assert ending == {IntentRecord(), *steps.values()}


def test_a_refusal_names_a_conjunct_and_an_action_changes_only_what_is_its() -> None:
    for before in {IntentRecord(), *walk(FUNCTIONS).values()}:
        for function in FUNCTIONS.values():
            decision = function(before)
            assert decision.accepted or decision.reason  # type: ignore[union-attr]


def late_write(intent: IntentRecord) -> Decision:
    """The request lands whatever has become of the intent: what the fence forbids."""
    if intent.vault is VaultState.ABSENT and intent.state is not IntentState.UNUSED:
        return Accepted(replace(intent, vault=VaultState.LIVE))
    return ACTIONS["CompleteCredentialWrite"].function(intent)


def fence_without_looking(intent: IntentRecord) -> Decision:
    if intent.state is IntentState.WRITING:
        return Accepted(replace(intent, state=IntentState.PREPARED))
    return ACTIONS["FenceFailedCredentialWrite"].function(intent)


def destroy_without_claim(intent: IntentRecord) -> Decision:
    if intent.vault is VaultState.LIVE:
        return Accepted(replace(intent, state=IntentState.ABANDONED, vault=VaultState.DESTROYED))
    return ACTIONS["DestroyClaimedCredentialSecret"].function(intent)


def commit_without_secret(intent: IntentRecord) -> Decision:
    if intent.state is IntentState.WRITING:
        return Accepted(replace(intent, state=IntentState.COMMITTED, version_durable=True))
    return ACTIONS["CommitCredentialVersion"].function(intent)


def abandon_while_writing(intent: IntentRecord) -> Decision:
    if intent.state is IntentState.WRITING:
        return Accepted(replace(intent, state=IntentState.ABANDONED))
    return ACTIONS["AbandonFencedCredentialIntent"].function(intent)


MUTANTS: list[tuple[str, Callable[[IntentRecord], Decision], str]] = [
    ("CompleteCredentialWrite", late_write, "NoOrphanSecrets"),
    ("FenceFailedCredentialWrite", fence_without_looking, "NoOrphanSecrets"),
    ("DestroyClaimedCredentialSecret", destroy_without_claim, "FinalStatesAreImmutable"),
    ("CommitCredentialVersion", commit_without_secret, "CredentialLifecycleWellFormed"),
    ("AbandonFencedCredentialIntent", abandon_while_writing, "NoOrphanSecrets"),
]


@pytest.mark.parametrize(("name", "mutant", "invariant"), MUTANTS)
def test_without_its_guard_an_action_breaks_an_invariant(
    name: str, mutant: Callable[[IntentRecord], Decision], invariant: str
) -> None:
    assert invariant in broken(walk(FUNCTIONS | {name: mutant}))
