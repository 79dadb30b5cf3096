"""The module's Fairness: which actions may not be put off for ever.

A rule stands for one constraint for each value of the parameters named in `by`: `WF(Enqueue(j))` for every
job. Weak: an action that stays enabled is taken. Strong: an action that is enabled again and again is taken.
Steps that no rule names (faults, RenewLease, RegrantLease, RequestCancel, PersistCheckpoint, ...) may be
taken or left.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from jobs.protocol.explorer_steps import Label


class Rule(Protocol):
    """What a fairness rule says; a component beside the jobs brings its own."""

    @property
    def name(self) -> str: ...
    @property
    def actions(self) -> tuple[str, ...]: ...
    @property
    def by(self) -> tuple[str, ...]: ...
    @property
    def strong(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class FairRule:
    """One line of the module's Fairness."""

    name: str
    actions: tuple[str, ...]
    by: tuple[str, ...]
    strong: bool = False


OUTCOME_ACTIONS: Final = (
    "AcceptSuccess",
    "AcceptPermanentFailure",
    "AcceptRetryableFailureWithBudget",
    "AcceptRetryableFailureExhausted",
    "RejectOutcome",
)
JOB, ATTEMPT = ("job",), ("job", "token")
FAIRNESS: Final = (
    FairRule("Enqueue", ("Enqueue",), JOB),
    FairRule("ReserveJob", ("Reserve",), JOB, strong=True),
    FairRule("AuthorizeJob", ("AuthorizeAttempt",), JOB, strong=True),
    FairRule("ActivateJob", ("ActivateAttempt",), JOB, strong=True),
    FairRule("ExecuteJob", ("SendOutcome", "AdvanceAttempt"), JOB, strong=True),
    FairRule("ProcessOutcome", OUTCOME_ACTIONS, ATTEMPT),
    FairRule("ExpireLease", ("ExpireLease",), ATTEMPT),
    FairRule("ExpireReservation", ("ExpireReservation",), JOB),
    FairRule("CooperativeStop", ("CooperativeStop",), ATTEMPT),
    FairRule("ReleaseLease", ("ReleaseLease",), ATTEMPT),
    FairRule("CleanupStage", ("CleanupStage",), ATTEMPT),
    FairRule("ReleaseReservation", ("ReleaseReservation",), JOB),
    FairRule("ReapJob", ("ReapLostAttempt",), JOB),
    FairRule("ScheduleRetry", ("ScheduleRetry",), JOB),
    FairRule("FinalizeCancel", ("FinalizeCancel",), JOB),
    FairRule("PublishCancelNotice", ("PublishCancelNotice",), JOB),
    FairRule("ClearStaleLiveProgress", ("ClearStaleLiveProgress",), JOB),
    FairRule("CleanTerminalCoordination", ("CleanTerminalCoordination",), JOB),
    FairRule("RestoreLink", ("RestoreLink",), ("worker", "service")),
    FairRule("StartIncarnation", ("StartIncarnation",), ("worker",)),
    FairRule("Tick", ("Tick",), ()),
)


class Constraints:
    """The constraints that these rules make of the labels met, one bit each."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self._bits: dict[tuple[str, tuple[str | int, ...]], int] = {}
        self.strong = 0

    def of(self, label: Label) -> int:
        """The constraints that a step under this label satisfies, as a mask."""
        params, mask = dict(label.params), 0
        for rule in self._rules:
            if label.action in rule.actions:
                key = rule.name, tuple(params[name] for name in rule.by)
                bit = self._bits.setdefault(key, 1 << len(self._bits))
                mask |= bit
                if rule.strong:
                    self.strong |= bit
        return mask

    def named(self, mask: int) -> list[str]:
        return [f"{name}{key}" for (name, key), bit in self._bits.items() if bit & mask]


def without(rules: Iterable[Rule], *names: str) -> list[Rule]:
    """The rules but for those named: what a property needs is shown by what it does without."""
    return [rule for rule in rules if rule.name not in names]
