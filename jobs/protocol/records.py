"""The protocol's state as values: one job's slice, a worker, the limits.

Frozen and hashable, so that a state can be explored, compared and replayed. Nothing here decides anything.

Three absences stand for values of the module, so that equal states are equal records: token 0 is NoAttempt,
a missing attempt record is AttemptUnused, a missing lease record is NoLease.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any, Final, TypeVar

from jobs.protocol.states import (
    TERMINAL_PHASES,
    AttemptState,
    LeaseState,
    LinkState,
    OutcomeRequest,
    Phase,
    Service,
    StageState,
    WorkerState,
)

R = TypeVar("R", "JobRecord", "AttemptRecord", "CoordinationRecord")
WorkerId = str
NO_TOKEN: Final = 0
UNBOUNDED: Final = 2**62
"""max_progress of an attempt whose total is not known yet."""


@dataclass(frozen=True, slots=True)
class Fence:
    """Carried by every side effect: the job and the token under which it is done."""

    job_id: Hashable
    token: int


@dataclass(frozen=True, slots=True)
class JobRecord:
    """DurableStore variables of one job. `authority` and `committed` are tokens, 0 for none."""

    phase: Phase = Phase.QUEUED
    cancel_requested: bool = False
    current_token: int = 0
    authority: int = NO_TOKEN
    dispatch_needed: bool = True
    committed: int = NO_TOKEN
    checkpoint: int = 0
    checkpoint_valid: bool = False

    @property
    def terminal(self) -> bool:
        return self.phase in TERMINAL_PHASES


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """One allocated attempt. Progress counts staged bytes plus one unit for the sealed manifest."""

    token: int
    worker: WorkerId
    state: AttemptState = AttemptState.AUTHORIZED
    progress: int = 0
    initial_progress: int = 0
    resumed_from_checkpoint: bool = False
    stage_state: StageState = StageState.NONE
    pending_outcome: OutcomeRequest = OutcomeRequest.NONE


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The lease of one attempt; `age` counts ticks since it was granted or renewed, 0 unless live."""

    token: int
    state: LeaseState
    age: int = 0


@dataclass(frozen=True, slots=True)
class CoordinationRecord:
    """CoordinationStore variables of one job: all of it reconstructible."""

    queued: bool = False
    reservation: WorkerId | None = None
    reservation_age: int = 0
    leases: tuple[LeaseRecord, ...] = ()
    cancel_notice: bool = False
    live_progress: int = 0
    live_progress_token: int = NO_TOKEN

    def lease(self, token: int) -> LeaseRecord | None:
        for lease in self.leases:
            if lease.token == token:
                return lease
        return None

    def lease_is_live(self, token: int) -> bool:
        lease = self.lease(token)
        return lease is not None and lease.state is LeaseState.LIVE

    def with_lease(self, lease: LeaseRecord) -> "CoordinationRecord":
        others = [held for held in self.leases if held.token != lease.token]
        leases = tuple(sorted((*others, lease), key=lambda held: held.token))
        return _changed(self, {"leases": leases})

    @property
    def live_lease_count(self) -> int:
        return len([lease for lease in self.leases if lease.state is LeaseState.LIVE])

    @property
    def clean(self) -> bool:
        """CoordinationClean(j)."""
        return (
            not self.queued
            and self.reservation is None
            and self.reservation_age == 0
            and not self.cancel_notice
            and self.live_progress == 0
            and self.live_progress_token == NO_TOKEN
        )


@dataclass(frozen=True, slots=True)
class JobView:
    """One job's slice of the state: what an action on that job reads and changes.

    A store may load only the attempts that an action needs: `attempts` is ascending by token and may have
    gaps.
    """

    job: JobRecord = JobRecord()
    attempts: tuple[AttemptRecord, ...] = ()
    coordination: CoordinationRecord = CoordinationRecord()

    def attempt(self, token: int) -> AttemptRecord | None:
        for attempt in reversed(self.attempts):
            if attempt.token == token:
                return attempt
        return None

    def current_authority(self, token: int) -> bool:
        """CurrentAuthority(a)."""
        return token != NO_TOKEN and self.job.authority == token == self.job.current_token

    def with_job(self, **changes: Any) -> "JobView":
        return JobView(_changed(self.job, changes), self.attempts, self.coordination)

    def with_attempt(self, token: int, **changes: Any) -> "JobView":
        attempts = tuple([_changed(a, changes) if a.token == token else a for a in self.attempts])
        return JobView(self.job, attempts, self.coordination)

    def with_coordination(self, **changes: Any) -> "JobView":
        return JobView(self.job, self.attempts, _changed(self.coordination, changes))


_SHAPES: Final[dict[type, tuple[dict[str, int], Callable[[Any], tuple[Any, ...]]]]] = {
    kind: ({name: place for place, name in enumerate(names)}, attrgetter(*names))
    for kind in (JobRecord, AttemptRecord, CoordinationRecord)
    for names in [[field.name for field in fields(kind)]]
}


def _changed(record: R, changes: dict[str, Any]) -> R:
    """dataclasses.replace at half its price: an exploration makes millions of records."""
    places, values_of = _SHAPES[type(record)]
    values = list(values_of(record))
    for name, value in changes.items():
        values[places[name]] = value
    return type(record)(*values)


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A worker incarnation as an action sees it. `links` are those to Coordination, Durable and Target, in
    that order.

    A store that is carrying out a worker's request has been reached by it, so its shells leave the links up.
    """

    id: WorkerId
    state: WorkerState = WorkerState.UP
    links: tuple[LinkState, LinkState, LinkState] = (LinkState.UP, LinkState.UP, LinkState.UP)

    def can_reach(self, service: Service) -> bool:
        return self.links[_LINK_INDEX[service]] is not LinkState.DOWN

    def with_link(self, service: Service, link: LinkState) -> "WorkerRecord":
        links = list(self.links)
        links[_LINK_INDEX[service]] = link
        return replace(self, links=(links[0], links[1], links[2]))


_LINK_INDEX: Final = {service: index for index, service in enumerate(Service)}


@dataclass(frozen=True, slots=True)
class Usage:
    """Permits taken now. Global: reservations + live leases. Local: that worker's reservations + executing
    attempts.
    """

    global_used: int
    local_used: int


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds an action is decided under. In a live system `max_attempts` and `max_progress` are one
    job's own.
    """

    max_attempts: int
    max_progress: int = UNBOUNDED
    lease_limit: int = 1
    reservation_limit: int = 1
    local_limit: int = UNBOUNDED
    global_limit: int = UNBOUNDED
