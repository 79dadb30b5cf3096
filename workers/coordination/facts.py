"""What the CoordinationStore is found to hold, as values. Ages are counted by Redis' clock, in its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from jobs.protocol.records import NO_TOKEN, CoordinationRecord, LeaseRecord
from jobs.protocol.states import LeaseState
from workers.coordination.replies import RenewReply, ReportReply, SweepReply
from workers.coordination.requests import Id

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Epoch:
    """One unbroken life of the coordination data: it ends with a wipe, a lost key or a restart of the server.

    An absent lease that was granted in another epoch is lost; one granted in this epoch has expired.
    """

    value: str
    since_ms: int
    now_ms: int

    @property
    def age_ms(self) -> int:
        return max(0, self.now_ms - self.since_ms)


@dataclass(frozen=True, slots=True)
class Marker:
    """The job is offered for `expected_token`. `offers` counts offers; `refused` is why the last reserve
    was refused.
    """

    expected_token: int
    queue: str
    priority: int
    age_ms: int
    offered_age_ms: int
    offers: int
    refused: str
    refused_age_ms: int


@dataclass(frozen=True, slots=True)
class Reservation:
    """One permit, held by an incarnation that may authorise (or has authorised) `expected_token`."""

    expected_token: int
    incarnation: str
    claim: str
    queue: str
    concurrency_key: str
    age_ms: int
    lapsed: bool


@dataclass(frozen=True, slots=True)
class Lease:
    """One permit, held by an attempt. It is live because it is present; `lapsed` only says that a sweep may
    take it.
    """

    token: int
    attempt_id: str
    incarnation: str
    queue: str
    concurrency_key: str
    epoch: str
    age_ms: int
    lapsed: bool


@dataclass(frozen=True, slots=True)
class LiveProgress:
    """The last report: a hint, to be checked against the durable authority."""

    token: int
    progress: int
    total: int | None
    phase: str
    age_ms: int


@dataclass(frozen=True, slots=True)
class CoordinationFacts:
    """One job's slice of the CoordinationStore."""

    marker: Marker | None = None
    reservation: Reservation | None = None
    lease: Lease | None = None
    notice_token: int | None = None
    progress: LiveProgress | None = None

    @property
    def empty(self) -> bool:
        return self == CoordinationFacts()

    @property
    def record(self) -> CoordinationRecord:
        """The same as the protocol's value. Absent leases are not in it: whether one expired or was lost is
        for its holder to know. Ages are milliseconds since grant or renewal.
        """
        lease, progress = self.lease, self.progress
        return CoordinationRecord(
            queued=self.marker is not None,
            reservation=self.reservation.incarnation if self.reservation else None,
            reservation_age=self.reservation.age_ms if self.reservation else 0,
            leases=(LeaseRecord(lease.token, LeaseState.LIVE, lease.age_ms),) if lease else (),
            cancel_notice=self.notice_token is not None,
            live_progress=progress.progress if progress else 0,
            live_progress_token=progress.token if progress else NO_TOKEN,
        )


@dataclass(frozen=True, slots=True)
class Beat:
    """The answer to one Heartbeat. `epoch` is the current one, not necessarily the one of the grant."""

    lease: RenewReply
    cancel_notice: bool
    epoch: str
    report: ReportReply | None = None


@dataclass(frozen=True, slots=True)
class Lapsed:
    """A permit that an expire script removed."""

    job_id: str
    token: int
    incarnation: str


@dataclass(frozen=True, slots=True)
class Sweep:
    """What an expire script did. `more` means that the bound was reached and another call would find more."""

    reply: SweepReply
    lapsed: tuple[Lapsed, ...]
    more: bool
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class PresenceSweep:
    """Which of the incarnations asked about have no presence. With GRACE, none are listed."""

    reply: SweepReply
    absent: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Garbage:
    """A field that no script can read: `kind` names the key, as in keys.py. `field` is as Redis has it."""

    kind: str
    field: str


@dataclass(frozen=True, slots=True)
class ScanPage:
    """Some of the job ids that have any coordination fact (as text; twice is possible, missing is not), and
    garbage.

    `cursor` is what the next call takes; None when the scan is through.
    """

    cursor: str | None
    job_ids: tuple[str, ...]
    garbage: tuple[Garbage, ...]


@dataclass(frozen=True, slots=True)
class PermitCounts:
    """Permits taken now, counted from what is present."""

    total: int
    reservations: int
    leases: int
    by_queue: dict[str, int]
    by_key: dict[str, int]
    reserved_by_incarnation: dict[str, int]
    leased_by_incarnation: dict[str, int]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Facts per job, keyed as asked, and the epoch in which they were read (the youngest, if one began
    meanwhile).
    """

    epoch: Epoch
    facts: Mapping[Id, CoordinationFacts]


@dataclass(frozen=True, slots=True)
class Grant(Generic[R]):
    """The reply to a grant of a lease, and the epoch that RenewLease is to be asked with when it was
    granted.
    """

    reply: R
    epoch: str
