"""How an attempt that must stop is made to: a request, SIGTERM, then SIGKILL to everything it started."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from workers.handlers.api import StopReason

FENCED_GRACE_S: Final = 2.0
_RANK: Final = {
    StopReason.DRAIN: 0,
    StopReason.TIME_LIMIT: 1,
    StopReason.CANCEL: 2,
    StopReason.LEASE_LOST: 3,
}


class Step(IntEnum):
    """How far a stop has been driven."""

    NONE = 0
    REQUESTED = 1
    TERMINATED = 2
    KILLED = 3


@dataclass(slots=True)
class StopLadder:
    """Driven by the supervisor's loop. A stop for a weightier reason starts again from the request."""

    grace_s: float
    reason: StopReason | None = None
    step: Step = Step.NONE
    due_at: float | None = None

    def ask(self, reason: StopReason, now: float) -> bool:
        """Whether this is news, so that the request must be sent."""
        if self.reason is not None and _RANK[reason] <= _RANK[self.reason]:
            return False
        self.reason = reason
        self.step = max(self.step, Step.REQUESTED)
        self.due_at = now + self._grace_s()
        return True

    def climb(self, now: float) -> Step | None:
        """The next step, if it is due."""
        if self.due_at is None or now < self.due_at or self.step is Step.KILLED:
            return None
        self.step = Step(self.step + 1)
        self.due_at = None if self.step is Step.KILLED else now + max(self._grace_s() / 2, 1.0)
        return self.step

    def _grace_s(self) -> float:
        """Nothing that a fenced attempt still does can count, so it is given less time."""
        return min(self.grace_s, FENCED_GRACE_S) if self.reason is StopReason.LEASE_LOST else self.grace_s
