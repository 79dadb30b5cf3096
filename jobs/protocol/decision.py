"""The answer of an action, and the registry of all actions.

A refusal is a value named after the conjunct that failed: losing a race is ordinary. Only a broken invariant
raises.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar

V = TypeVar("V")
F = TypeVar("F", bound=Callable[..., Any])


class Refusal(StrEnum):
    """The conjunct that failed."""

    NOT_QUEUED = "NOT_QUEUED"
    NOT_RUNNING = "NOT_RUNNING"
    NOT_RETRY_WAIT = "NOT_RETRY_WAIT"
    NOT_CANCELLING = "NOT_CANCELLING"
    NOT_CANCELLABLE = "NOT_CANCELLABLE"
    NOT_TERMINAL = "NOT_TERMINAL"
    TERMINAL = "TERMINAL"
    DISPATCH_NOT_NEEDED = "DISPATCH_NOT_NEEDED"
    MARKER_PRESENT = "MARKER_PRESENT"
    NO_MARKER = "NO_MARKER"
    RESERVED = "RESERVED"
    NOT_RESERVED = "NOT_RESERVED"
    RESERVED_BY_ANOTHER = "RESERVED_BY_ANOTHER"
    RESERVATION_NOT_LAPSED = "RESERVATION_NOT_LAPSED"
    RESERVATION_STILL_NEEDED = "RESERVATION_STILL_NEEDED"
    WORKER_NOT_UP = "WORKER_NOT_UP"
    WORKER_NOT_UNUSED = "WORKER_NOT_UNUSED"
    UNREACHABLE = "UNREACHABLE"
    NO_GLOBAL_PERMIT = "NO_GLOBAL_PERMIT"
    NO_LOCAL_PERMIT = "NO_LOCAL_PERMIT"
    BUDGET_SPENT = "BUDGET_SPENT"
    BUDGET_LEFT = "BUDGET_LEFT"
    TOKEN_ALREADY_USED = "TOKEN_ALREADY_USED"  # noqa: S105
    NO_SUCH_ATTEMPT = "NO_SUCH_ATTEMPT"
    NOT_CURRENT_AUTHORITY = "NOT_CURRENT_AUTHORITY"
    CURRENT_AUTHORITY = "CURRENT_AUTHORITY"
    NOT_AUTHORIZED = "NOT_AUTHORIZED"
    NOT_EXECUTING = "NOT_EXECUTING"
    LEASE_IS_LIVE = "LEASE_IS_LIVE"
    LEASE_NOT_LIVE = "LEASE_NOT_LIVE"
    LEASE_NOT_LOST = "LEASE_NOT_LOST"
    LEASE_IS_FRESH = "LEASE_IS_FRESH"
    LEASE_NOT_LAPSED = "LEASE_NOT_LAPSED"
    LEASE_STILL_NEEDED = "LEASE_STILL_NEEDED"
    NOTHING_TO_TICK = "NOTHING_TO_TICK"
    NO_PROGRESS = "NO_PROGRESS"
    AMOUNT_OUT_OF_RANGE = "AMOUNT_OUT_OF_RANGE"
    NOTHING_CHANGED = "NOTHING_CHANGED"
    CHECKPOINT_NOT_VALID = "CHECKPOINT_NOT_VALID"
    NO_REASON_TO_STOP = "NO_REASON_TO_STOP"
    NOT_AN_OUTCOME = "NOT_AN_OUTCOME"
    OUTCOME_PENDING = "OUTCOME_PENDING"
    NO_SUCH_OUTCOME_PENDING = "NO_SUCH_OUTCOME_PENDING"
    OUTCOME_ELIGIBLE = "OUTCOME_ELIGIBLE"
    STAGE_NOT_COMPLETE = "STAGE_NOT_COMPLETE"
    CANCEL_REQUESTED = "CANCEL_REQUESTED"
    CANCEL_NOT_REQUESTED = "CANCEL_NOT_REQUESTED"
    NOTICE_PRESENT = "NOTICE_PRESENT"
    NOTHING_STAGED = "NOTHING_STAGED"
    COMMITTED = "COMMITTED"
    MAY_STILL_WRITE = "MAY_STILL_WRITE"
    NO_LIVE_PROGRESS = "NO_LIVE_PROGRESS"
    PROGRESS_IS_BACKED = "PROGRESS_IS_BACKED"
    COORDINATION_CLEAN = "COORDINATION_CLEAN"
    LINK_ALREADY_DOWN = "LINK_ALREADY_DOWN"
    LINK_NOT_DOWN = "LINK_NOT_DOWN"


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


Decision = Accepted[V] | Refused
_REFUSED: Final = {reason: Refused(reason) for reason in Refusal}


def refuse(reason: Refusal) -> Refused:
    """The refusal for this reason: one object for each, since an exploration refuses most of what it asks."""
    return _REFUSED[reason]


class Store(StrEnum):
    """Where an action's effect is written."""

    DURABLE = "durable"
    COORDINATION = "coordination"
    TARGET = "target"
    WORLD = "world"


class ActionSpec(NamedTuple):
    """One action of the module and the pure function that is its only implementation."""

    name: str
    store: Store
    function: Callable[..., Any]


ACTIONS: Final[dict[str, ActionSpec]] = {}


def action(name: str, store: Store) -> Callable[[F], F]:
    """Register a pure function as the implementation of the module's action `name`."""

    def register(function: F) -> F:
        if name in ACTIONS:
            raise ValueError(f"action {name} is written twice")
        ACTIONS[name] = ActionSpec(name, store, function)
        return function

    return register
