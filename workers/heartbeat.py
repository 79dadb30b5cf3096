"""The heart of one attempt: when to renew, how long to trust the last renewal, what an answer means.

Local time only shortens the trust in a lease, never extends it: the window is counted from before the call
that renewed it was made, so it closes no later than the lease does on Redis' clock. When it closes without
an answer the work stops on its own, asking nobody.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum


class Pulse(StrEnum):
    """What the CoordinationStore said of the lease, in the words that matter to the supervisor."""

    RENEWED = "renewed"
    LOST = "lost"  # with the CoordinationStore's data: may be granted again
    OVER = "over"  # it lapsed, or a newer attempt has the slot: final
    SILENT = "silent"  # no answer


@dataclass(slots=True)
class TrustWindow:
    """Until when the attempt may work on without another answer. All times are this machine's monotonic
    clock.
    """

    lease_s: float
    closes_at: float

    @classmethod
    def opened(cls, before_the_grant: float, lease_s: float) -> TrustWindow:
        return cls(lease_s, before_the_grant + lease_s)

    def renewed(self, before_the_call: float) -> None:
        self.closes_at = max(self.closes_at, before_the_call + self.lease_s)

    def is_closed(self, now: float) -> bool:
        return now >= self.closes_at


@dataclass(slots=True)
class Rhythm:
    """When the next renewal is due: every period, and sooner while there is no answer."""

    period_s: float
    due_at: float

    def beaten(self, now: float, pulse: Pulse) -> None:
        wait_s = self.period_s if pulse is Pulse.RENEWED else self.period_s / 4
        # Jitter, so that a thousand attempts do not renew in step after the store comes back.
        self.due_at = now + wait_s * random.uniform(0.8, 1.0)
