"""What a fleet's step is, and the bounds it is taken under."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jobs.protocol.decision import Accepted, Decision, Refusal
from jobs.protocol.records import JobView, Limits
from workers.coordination.requests import PermitLimits
from workers.coordination.store import Timing

JOBS = ("j1", "j2", "j3")
TOKENS = (1, 2, 3)
LIMITS = Limits(
    max_attempts=3, max_progress=2, lease_limit=2, reservation_limit=2, local_limit=2, global_limit=2
)
PERMITS = PermitLimits(global_limit=2, local_limit=2)
TICK_MS = 1_000_000  # no test takes so long that real time shows
TIMING = Timing(lease_ms=2 * TICK_MS, reservation_ms=2 * TICK_MS, sweep_gap_ms=10_000_000)
# What only Redis knows of an action's guards; every other refusal is one that the caller found in PostgreSQL.
FOUND_IN_REDIS = {
    Refusal.MARKER_PRESENT,
    Refusal.NO_MARKER,
    Refusal.RESERVED,
    Refusal.NOT_RESERVED,
    Refusal.RESERVED_BY_ANOTHER,
    Refusal.NO_GLOBAL_PERMIT,
    Refusal.NO_LOCAL_PERMIT,
    Refusal.LEASE_NOT_LIVE,
    Refusal.LEASE_NOT_LOST,
    Refusal.NOTHING_CHANGED,
    Refusal.NOTICE_PRESENT,
    Refusal.NO_LIVE_PROGRESS,
    Refusal.PROGRESS_IS_BACKED,
    Refusal.COORDINATION_CLEAN,
}


@dataclass(frozen=True, slots=True)
class Step:
    """One action on one job: what the model says, and, for a coordination action, how to ask Redis."""

    name: str
    job: str
    decision: Decision[JobView]
    said: Callable[[], str] | None = None
    accepting: str = ""

    @property
    def callable(self) -> bool:
        """A script is called when everything that PostgreSQL knows of its guards holds."""
        return isinstance(self.decision, Accepted) or self.decision.reason in FOUND_IN_REDIS
