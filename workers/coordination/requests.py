"""What is asked of the CoordinationStore: one small value per element of a batch.

Texts (ids, queue names, keys) may not hold NUL and are bounded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias
from uuid import UUID

Id: TypeAlias = UUID | str
"""A job, attempt or incarnation id. Answers keyed by id use the very value the caller gave."""

NO_LIMIT: Final = -1
TEXT_BYTES_MAX: Final = 512
TOKEN_MAX: Final = 10**13  # what the scripts' numbers carry exactly


@dataclass(frozen=True, slots=True)
class PermitLimits:
    """How many permits (reservations and live leases) there may be; NO_LIMIT where there is none.

    `local_limit` bounds one incarnation: its reservations plus the attempts it says it is executing,
    zombies included.
    """

    global_limit: int = NO_LIMIT
    queue_limit: int = NO_LIMIT
    key_limit: int = NO_LIMIT
    local_limit: int = NO_LIMIT


@dataclass(frozen=True, slots=True)
class EnqueueRequest:
    """Set the marker that offers the attempt `expected_token` (current token + 1). Ask while the row lock
    is held.
    """

    job_id: Id
    expected_token: int
    queue: str
    priority: int = 0


@dataclass(frozen=True, slots=True)
class ReserveRequest:
    """Take the marker of `expected_token` for `incarnation`.

    `claim` is an id made for this one intake: a repeat of the call with the same claim gets the same
    answer, while a duplicated offer in another process of the same incarnation (another claim) is told
    TAKEN.
    """

    job_id: Id
    expected_token: int
    incarnation: Id
    claim: Id
    queue: str
    concurrency_key: str = ""
    limits: PermitLimits = field(default_factory=PermitLimits)
    executing_here: int = 0


@dataclass(frozen=True, slots=True)
class ActivateRequest:
    """Turn the reservation of (`incarnation`, `claim`, `token`) into that token's lease. Queue and key are
    carried over.

    `progress` is the attempt's initial progress: live progress starts there.
    """

    job_id: Id
    token: int
    attempt_id: Id
    incarnation: Id
    claim: Id
    progress: int = 0


@dataclass(frozen=True, slots=True)
class RenewRequest:
    """Push the deadline of a present lease. `grant_epoch` is the epoch in which it was (re)granted."""

    job_id: Id
    token: int
    attempt_id: Id
    grant_epoch: str


@dataclass(frozen=True, slots=True)
class RegrantRequest:
    """Grant a lost lease again. The caller has read, under the row lock, that this attempt is the
    authority.
    """

    job_id: Id
    token: int
    attempt_id: Id
    incarnation: Id
    grant_epoch: str
    queue: str
    concurrency_key: str = ""
    limits: PermitLimits = field(default_factory=PermitLimits)


@dataclass(frozen=True, slots=True)
class ReleaseReservationRequest:
    """Give back one reservation: all three must be the ones that hold it (a sweep copies them from a
    snapshot).
    """

    job_id: Id
    expected_token: int
    incarnation: Id
    claim: Id


@dataclass(frozen=True, slots=True)
class ReleaseLeaseRequest:
    """Give back one attempt's lease."""

    job_id: Id
    token: int
    attempt_id: Id


@dataclass(frozen=True, slots=True)
class ReportRequest:
    """Live progress of the attempt whose lease is present: a hint. `total` is None while unknown."""

    job_id: Id
    token: int
    attempt_id: Id
    progress: int
    total: int | None = None
    phase: str = ""


@dataclass(frozen=True, slots=True)
class NoticeRequest:
    """Tell whoever runs `token` (the authority, 0 if none) that cancel was requested."""

    job_id: Id
    token: int


@dataclass(frozen=True, slots=True)
class ClearProgressRequest:
    """Drop live progress that nothing backs, given what PostgreSQL said *after* the progress was seen."""

    job_id: Id
    current_token: int
    authority: int


@dataclass(frozen=True, slots=True)
class CleanRequest:
    """Drop marker, reservation, notice and progress of a terminal job, none of them newer than
    `current_token`.
    """

    job_id: Id
    current_token: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """One attempt's beat: renew, report if there is something to report, hear of a cancel."""

    renew: RenewRequest
    report: ReportRequest | None = None
