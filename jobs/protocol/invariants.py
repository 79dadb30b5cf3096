"""The module's state invariants, under its names: what is true in every state that the protocol can reach.

Most speak of one job's slice, one speaks of the whole fleet. The explorer asserts them in every state, the
durable store on every view it is about to write, the audit on every view it replays. Those of credential
intents are in the credential protocol. A store loads only some attempts and does not own the
CoordinationStore's part of a view: `broken_durably` judges what such a view can answer for.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from jobs.protocol.records import NO_TOKEN, AttemptRecord, JobRecord, JobView, Limits, Usage, WorkerRecord
from jobs.protocol.states import (
    AttemptState,
    LeaseState,
    LinkState,
    OutcomeRequest,
    Phase,
    StageState,
    WorkerState,
)

Invariant = Callable[[JobView, Limits], bool]
FleetInvariant = Callable[[Iterable[Usage], Limits], bool]

_AUTHORITATIVE: Final = frozenset({Phase.RUNNING, Phase.CANCELLING})
_CANCEL_REQUESTED: Final = frozenset({Phase.CANCELLING, Phase.CANCELLED})


def type_ok(view: JobView, limits: Limits) -> bool:
    """TypeOK, for one job."""
    if not (_job_type_ok(view.job, limits) and _coordination_type_ok(view, limits)):
        return False
    return all([_attempt_type_ok(attempt, limits) for attempt in view.attempts])  # noqa: C419  (faster)


def _job_type_ok(job: JobRecord, limits: Limits) -> bool:
    return (
        type(job.phase) is Phase
        and 0 <= job.current_token <= limits.max_attempts
        and 0 <= job.authority <= limits.max_attempts
        and 0 <= job.committed <= limits.max_attempts
        and 0 <= job.checkpoint <= limits.max_progress
    )


def _coordination_type_ok(view: JobView, limits: Limits) -> bool:
    coordination = view.coordination
    for lease in coordination.leases:
        oldest = limits.lease_limit if lease.state is LeaseState.LIVE else 0
        if type(lease.state) is not LeaseState or not 0 <= lease.age <= oldest:
            return False
    return (
        0 <= coordination.reservation_age <= limits.reservation_limit
        and 0 <= coordination.live_progress <= limits.max_progress
        and 0 <= coordination.live_progress_token <= limits.max_attempts
    )


def _attempt_type_ok(attempt: AttemptRecord, limits: Limits) -> bool:
    return (
        type(attempt.state) is AttemptState
        and type(attempt.stage_state) is StageState
        and type(attempt.pending_outcome) is OutcomeRequest
        and 1 <= attempt.token <= limits.max_attempts
        and 0 <= attempt.progress <= limits.max_progress
        and 0 <= attempt.initial_progress <= limits.max_progress
    )


def worker_type_ok(worker: WorkerRecord) -> bool:
    """TypeOK, for one worker incarnation."""
    return type(worker.state) is WorkerState and all(type(link) is LinkState for link in worker.links)


def state_consistency(view: JobView, limits: Limits) -> bool:
    """StateConsistency: its conjuncts, each of which bears the name of the database's CHECK."""
    return all([holds(view) for holds in STATE_CONSISTENCY.values()])  # noqa: C419  (faster)


def _consistent_authority(view: JobView) -> bool:
    job = view.job
    if job.phase in _AUTHORITATIVE:
        return job.authority != NO_TOKEN and job.authority == job.current_token
    return job.authority == NO_TOKEN


def _consistent_cancel(view: JobView) -> bool:
    return view.job.cancel_requested == (view.job.phase in _CANCEL_REQUESTED)


def _consistent_committed(view: JobView) -> bool:
    return (view.job.committed != NO_TOKEN) == (view.job.phase is Phase.SUCCEEDED)


def _consistent_dispatch(view: JobView) -> bool:
    return view.job.phase is not Phase.QUEUED or view.job.dispatch_needed


def _consistent_reservation(view: JobView) -> bool:
    if view.coordination.reservation is None:
        return view.coordination.reservation_age == 0
    return not view.coordination.queued


def _consistent_attempts(view: JobView) -> bool:
    job = view.job
    for attempt in view.attempts:
        if not attempt.worker or attempt.token > job.current_token:
            return False
        if attempt.stage_state is StageState.CLEANED and job.committed == attempt.token:
            return False
    return True


def _consistent_leases(view: JobView) -> bool:
    for lease in view.coordination.leases:
        if lease.state is LeaseState.LIVE and view.attempt(lease.token) is None:
            return False
    return True


STATE_CONSISTENCY: Final[Mapping[str, Callable[[JobView], bool]]] = {
    "state_consistency__authority": _consistent_authority,
    "state_consistency__cancel": _consistent_cancel,
    "state_consistency__committed": _consistent_committed,
    "state_consistency__dispatch": _consistent_dispatch,
    "state_consistency__reservation": _consistent_reservation,
    "state_consistency__attempts": _consistent_attempts,
    "state_consistency__leases": _consistent_leases,
}
_IN_COORDINATION: Final = frozenset({"state_consistency__reservation", "state_consistency__leases"})


def allocated_tokens_used(view: JobView, limits: Limits) -> bool:
    """AllocatedTokensUsed: tokens 1..current_token are allocated, without a gap."""
    tokens = {attempt.token for attempt in view.attempts}
    return tokens.issuperset(range(1, view.job.current_token + 1))


def live_progress_well_formed(view: JobView, limits: Limits) -> bool:
    """LiveProgressWellFormed: a hint is about an attempt of this job and never ahead of it."""
    token = view.coordination.live_progress_token
    if token == NO_TOKEN:
        return True
    attempt = view.attempt(token)
    return (
        attempt is not None
        and token <= view.job.current_token
        and view.coordination.live_progress <= attempt.progress
    )


def live_progress_compatible_with_live_lease(view: JobView, limits: Limits) -> bool:
    """LiveProgressCompatibleWithLiveLease: no progress of a zombie under another attempt's live lease."""
    shown = view.coordination.live_progress_token
    for lease in view.coordination.leases:
        if lease.state is LeaseState.LIVE and shown not in (NO_TOKEN, lease.token):
            return False
    return True


def at_most_one_live_lease_per_job(view: JobView, limits: Limits) -> bool:
    """AtMostOneLiveLeasePerJob."""
    return view.coordination.live_lease_count <= 1


def authority_well_formed(view: JobView, limits: Limits) -> bool:
    """AuthorityWellFormed: it is the newest attempt, and not one that has committed."""
    token = view.job.authority
    if token == NO_TOKEN:
        return True
    attempt = view.attempt(token)
    return (
        attempt is not None
        and token == view.job.current_token
        and attempt.state is not AttemptState.COMMITTED
    )


def committed_result_consistent(view: JobView, limits: Limits) -> bool:
    """CommittedResultConsistent: it is the newest attempt's, complete, and of a job that nobody cancelled."""
    token = view.job.committed
    if token == NO_TOKEN:
        return True
    attempt = view.attempt(token)
    return (
        attempt is not None
        and token == view.job.current_token
        and attempt.state is AttemptState.COMMITTED
        and attempt.stage_state is StageState.COMPLETE
        and not view.job.cancel_requested
    )


def cancellation_safety(view: JobView, limits: Limits) -> bool:
    """CancellationSafety: once cancel is requested nothing is published."""
    return not view.job.cancel_requested or view.job.committed == NO_TOKEN


def resume_validity(view: JobView, limits: Limits) -> bool:
    """ResumeValidity: progress never falls below where the attempt started, and it says when it resumed."""
    for attempt in view.attempts:
        resumed = attempt.initial_progress > 0
        if attempt.progress < attempt.initial_progress or attempt.resumed_from_checkpoint != resumed:
            return False
    return True


def staging_ownership(view: JobView, limits: Limits) -> bool:
    """StagingOwnership: nobody cleans what is committed or may still be."""
    for attempt in view.attempts:
        token, stage = attempt.token, attempt.stage_state
        if stage is StageState.CLEANED and view.current_authority(token):
            return False
        if view.job.committed == token and stage is not StageState.COMPLETE:
            return False
    return True


def permit_safety(usages: Iterable[Usage], limits: Limits) -> bool:
    """PermitSafety: neither the fleet nor any worker holds more permits than there are. One usage for each
    worker.
    """
    return all(
        usage.global_used <= limits.global_limit and usage.local_used <= limits.local_limit
        for usage in usages
    )


INVARIANTS: Final[Mapping[str, Invariant]] = {
    "TypeOK": type_ok,
    "StateConsistency": state_consistency,
    "AllocatedTokensUsed": allocated_tokens_used,
    "LiveProgressWellFormed": live_progress_well_formed,
    "LiveProgressCompatibleWithLiveLease": live_progress_compatible_with_live_lease,
    "AtMostOneLiveLeasePerJob": at_most_one_live_lease_per_job,
    "AuthorityWellFormed": authority_well_formed,
    "CommittedResultConsistent": committed_result_consistent,
    "CancellationSafety": cancellation_safety,
    "ResumeValidity": resume_validity,
    "StagingOwnership": staging_ownership,
}
FLEET_INVARIANTS: Final[Mapping[str, FleetInvariant]] = {"PermitSafety": permit_safety}

# The attempt that an invariant cannot be judged without.
_NEEDED_ATTEMPT: Final[Mapping[str, Callable[[JobView], int]]] = {
    "AuthorityWellFormed": lambda view: view.job.authority,
    "CommittedResultConsistent": lambda view: view.job.committed,
}
_DURABLE: Final = (
    "AuthorityWellFormed",
    "CommittedResultConsistent",
    "CancellationSafety",
    "ResumeValidity",
    "StagingOwnership",
)


def broken(view: JobView, limits: Limits) -> list[str]:
    """The invariants that a whole slice breaks."""
    return [name for name, holds in INVARIANTS.items() if not holds(view, limits)]


def broken_durably(view: JobView, limits: Limits) -> list[str]:
    """The invariants of the DurableStore that this view breaks, which may hold only some of the job's
    attempts.
    """
    parts = [
        name for name, part in STATE_CONSISTENCY.items() if name not in _IN_COORDINATION and not part(view)
    ]
    return parts + [
        name for name in _DURABLE if _judgeable(name, view) and not INVARIANTS[name](view, limits)
    ]


def _judgeable(name: str, view: JobView) -> bool:
    needed = _NEEDED_ATTEMPT.get(name)
    return needed is None or needed(view) == NO_TOKEN or view.attempt(needed(view)) is not None


def usage_of(view: JobView, worker_id: str) -> Usage:
    """What one job's slice takes of the permits: its reservation and live leases; at `worker_id`, what runs
    there.
    """
    reserved = view.coordination.reservation
    executing = sum(
        attempt.state is AttemptState.EXECUTING and attempt.worker == worker_id for attempt in view.attempts
    )
    return Usage(
        global_used=(reserved is not None) + view.coordination.live_lease_count,
        local_used=(reserved == worker_id) + executing,
    )
