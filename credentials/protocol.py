"""The credential protocol, written once: nine actions over one intent, as pure functions; records and
invariants.

Standard library only; imports nothing of the project. The durable store, the reconciler, the explorer and
the audit go through these functions; a guard that exists anywhere else is a defect.

An intent is the durable owner of a write to Vault from before the write can begin until its secret belongs
to a durable version, or is proved never to have been, or destroyed. Its record joins what two stores know:

* `state` and `version_durable` are PostgreSQL's;
* `vault` is what Vault holds at the intent's current path. Who calls says how it was observed, and why that
  is still so when the decision is made (docs/credentials.md has the table). `ABSENT` may be said only of a
  path that is fenced, or that was never handed to a writer: until then "nothing there" is not a fact.

The module's CredentialIntentUnused is the absence of a row; `UNUSED` stands for it in records.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar, Final, Generic, NamedTuple, TypeVar

V = TypeVar("V")


class IntentState(StrEnum):
    """Where an intent stands. The last two are final."""

    UNUSED = "CredentialIntentUnused"
    PREPARED = "CredentialIntentPrepared"
    WRITING = "CredentialIntentWriting"
    WRITTEN = "CredentialIntentWritten"
    ABANDONING = "CredentialIntentAbandoning"
    COMMITTED = "CredentialIntentCommitted"
    ABANDONED = "CredentialIntentAbandoned"


OPEN_STATES: Final = frozenset(
    {IntentState.PREPARED, IntentState.WRITING, IntentState.WRITTEN, IntentState.ABANDONING}
)
FINAL_STATES: Final = frozenset({IntentState.COMMITTED, IntentState.ABANDONED})
# While an intent is in one of these, it alone answers for a live secret at its path.
OWNING_STATES: Final = frozenset({IntentState.WRITING, IntentState.WRITTEN, IntentState.ABANDONING})


class VaultState(StrEnum):
    """What Vault holds at an intent's path."""

    ABSENT = "VaultSecretAbsent"
    LIVE = "VaultSecretLive"
    DESTROYED = "VaultSecretDestroyed"


@dataclass(frozen=True, slots=True)
class IntentRecord:
    """One credential intent across both stores."""

    state: IntentState = IntentState.UNUSED
    vault: VaultState = VaultState.ABSENT
    version_durable: bool = False


class Refusal(StrEnum):
    """The conjunct that failed."""

    NOT_UNUSED = "NOT_UNUSED"
    NOT_PREPARED = "NOT_PREPARED"
    NOT_WRITING = "NOT_WRITING"
    NOT_WRITTEN = "NOT_WRITTEN"
    NOT_WRITING_OR_WRITTEN = "NOT_WRITING_OR_WRITTEN"
    NOT_ABANDONING = "NOT_ABANDONING"
    SECRET_NOT_ABSENT = "SECRET_NOT_ABSENT"  # noqa: S105
    SECRET_NOT_LIVE = "SECRET_NOT_LIVE"  # noqa: S105
    VERSION_IS_DURABLE = "VERSION_IS_DURABLE"


@dataclass(frozen=True, slots=True)
class Accepted(Generic[V]):
    """Every guard held; `value` is the new state."""

    value: V
    accepted: ClassVar[bool] = True
    refused: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class Refused:
    """A guard failed and nothing changed; `reason` names the guard."""

    reason: Refusal
    accepted: ClassVar[bool] = False
    refused: ClassVar[bool] = True


Decision = Accepted[IntentRecord] | Refused
Action = Callable[[IntentRecord], Decision]


class ActionSpec(NamedTuple):
    """One action of the module, and the pure function that is its only implementation."""

    name: str
    function: Action


ACTIONS: Final[dict[str, ActionSpec]] = {}


def action(name: str) -> Callable[[Action], Action]:
    """Register a pure function as the implementation of the module's action `name`."""

    def register(function: Action) -> Action:
        if name in ACTIONS:
            raise ValueError(f"action {name} is written twice")
        ACTIONS[name] = ActionSpec(name, function)
        return function

    return register


@action("PrepareCredentialIntent")
def prepare_credential_intent(intent: IntentRecord) -> Decision:
    """The intent exists before anything is sent to Vault."""
    if intent.state is not IntentState.UNUSED:
        return Refused(Refusal.NOT_UNUSED)
    return Accepted(replace(intent, state=IntentState.PREPARED))


@action("BeginCredentialWrite")
def begin_credential_write(intent: IntentRecord) -> Decision:
    """From here on a secret may appear at the path at any moment."""
    if intent.state is not IntentState.PREPARED:
        return Refused(Refusal.NOT_PREPARED)
    if intent.vault is not VaultState.ABSENT:
        return Refused(Refusal.SECRET_NOT_ABSENT)
    return Accepted(replace(intent, state=IntentState.WRITING))


@action("CompleteCredentialWrite")
def complete_credential_write(intent: IntentRecord) -> Decision:
    """Vault's own step: check-and-set against absence. In the product Vault decides it, not PostgreSQL."""
    if intent.state is not IntentState.WRITING:
        return Refused(Refusal.NOT_WRITING)
    if intent.vault is not VaultState.ABSENT:
        return Refused(Refusal.SECRET_NOT_ABSENT)
    return Accepted(replace(intent, vault=VaultState.LIVE))


@action("RecordCredentialWrite")
def record_credential_write(intent: IntentRecord) -> Decision:
    """The write is known to have landed."""
    if intent.state is not IntentState.WRITING:
        return Refused(Refusal.NOT_WRITING)
    if intent.vault is not VaultState.LIVE:
        return Refused(Refusal.SECRET_NOT_LIVE)
    return Accepted(replace(intent, state=IntentState.WRITTEN))


@action("FenceFailedCredentialWrite")
def fence_failed_credential_write(intent: IntentRecord) -> Decision:
    """The write has not landed and, the path being fenced, never will."""
    if intent.state is not IntentState.WRITING:
        return Refused(Refusal.NOT_WRITING)
    if intent.vault is not VaultState.ABSENT:
        return Refused(Refusal.SECRET_NOT_ABSENT)
    return Accepted(replace(intent, state=IntentState.PREPARED))


@action("CommitCredentialVersion")
def commit_credential_version(intent: IntentRecord) -> Decision:
    """The secret belongs to a durable version."""
    if intent.state is not IntentState.WRITTEN:
        return Refused(Refusal.NOT_WRITTEN)
    if intent.vault is not VaultState.LIVE:
        return Refused(Refusal.SECRET_NOT_LIVE)
    return Accepted(replace(intent, state=IntentState.COMMITTED, version_durable=True))


@action("ClaimCredentialCleanup")
def claim_credential_cleanup(intent: IntentRecord) -> Decision:
    """A secret that nobody will own: no version can be committed from it any more."""
    if intent.state not in (IntentState.WRITING, IntentState.WRITTEN):
        return Refused(Refusal.NOT_WRITING_OR_WRITTEN)
    if intent.vault is not VaultState.LIVE:
        return Refused(Refusal.SECRET_NOT_LIVE)
    if intent.version_durable:
        return Refused(Refusal.VERSION_IS_DURABLE)
    return Accepted(replace(intent, state=IntentState.ABANDONING))


@action("DestroyClaimedCredentialSecret")
def destroy_claimed_credential_secret(intent: IntentRecord) -> Decision:
    """Destroyed in Vault, then recorded."""
    if intent.state is not IntentState.ABANDONING:
        return Refused(Refusal.NOT_ABANDONING)
    if intent.vault is not VaultState.LIVE:
        return Refused(Refusal.SECRET_NOT_LIVE)
    if intent.version_durable:
        return Refused(Refusal.VERSION_IS_DURABLE)
    return Accepted(replace(intent, state=IntentState.ABANDONED, vault=VaultState.DESTROYED))


@action("AbandonFencedCredentialIntent")
def abandon_fenced_credential_intent(intent: IntentRecord) -> Decision:
    """Nothing is there and nothing can come."""
    if intent.state is not IntentState.PREPARED:
        return Refused(Refusal.NOT_PREPARED)
    if intent.vault is not VaultState.ABSENT:
        return Refused(Refusal.SECRET_NOT_ABSENT)
    return Accepted(replace(intent, state=IntentState.ABANDONED))


_ABSENT, _LIVE, _DESTROYED = VaultState.ABSENT, VaultState.LIVE, VaultState.DESTROYED
WELL_FORMED: Final[dict[IntentState, tuple[frozenset[VaultState], bool]]] = {
    IntentState.UNUSED: (frozenset({_ABSENT}), False),
    IntentState.PREPARED: (frozenset({_ABSENT}), False),
    IntentState.WRITING: (frozenset({_ABSENT, _LIVE}), False),
    IntentState.WRITTEN: (frozenset({_LIVE}), False),
    IntentState.COMMITTED: (frozenset({_LIVE, _DESTROYED}), True),
    IntentState.ABANDONING: (frozenset({_LIVE}), False),
    IntentState.ABANDONED: (frozenset({_ABSENT, _DESTROYED}), False),
}


def credential_lifecycle_well_formed(intent: IntentRecord) -> bool:
    """CredentialLifecycleWellFormed, for one intent."""
    vault, version_durable = WELL_FORMED[intent.state]
    return intent.vault in vault and intent.version_durable is version_durable


def no_orphan_secrets(intent: IntentRecord) -> bool:
    """NoOrphanSecrets, for one intent: a live secret has a durable owner."""
    return intent.vault is not VaultState.LIVE or intent.version_durable or intent.state in OWNING_STATES


INVARIANTS: Final[dict[str, Callable[[IntentRecord], bool]]] = {
    "CredentialLifecycleWellFormed": credential_lifecycle_well_formed,
    "NoOrphanSecrets": no_orphan_secrets,
}


def final_states_are_immutable(before: IntentRecord, after: IntentRecord) -> bool:
    """What was Committed or Abandoned stays so (action property)."""
    return before.state not in FINAL_STATES or (
        after.state is before.state and after.version_durable is before.version_durable
    )
