"""Mutants of dispatch, reservations and leases; and changes that turn out to be none, each with the reason
why.
"""

from credentials import protocol as credentials
from jobs.protocol import dispatch, leases, outcomes
from tests.model.mutants import (
    COUNT,
    CRASHES,
    CUT,
    INTENT,
    ONE,
    ROOMY,
    ROOMY_LOSSES,
    TWO_ATTEMPTS,
    TWO_JOBS,
    TWO_JOBS_LOSSES,
    TWO_JOBS_ROOMY,
    Mutant,
    dropped,
)

DISPATCH_AND_LEASES = [
    # Enqueue, Reserve
    dropped(dispatch.enqueue, "view.coordination.reservation is not None", ONE, "StateConsistency"),
    dropped(dispatch.reserve, "not view.coordination.queued", ONE, COUNT),
    dropped(dispatch.reserve, "worker.state is not WorkerState.UP", CRASHES, COUNT),
    Mutant(dispatch.reserve, "reservation=worker.id", "reservation=None", ONE, "EventuallyDispatched"),
    dropped(dispatch.reserve, "not worker.can_reach(Service.COORDINATION)", CUT, COUNT),
    Mutant(dispatch.reserve, "global_used >=", "global_used >", TWO_JOBS, "PermitSafety"),
    Mutant(dispatch.reserve, "local_used >=", "local_used >", TWO_JOBS_ROOMY, "PermitSafety"),
    Mutant(dispatch.reserve, "queued=False, ", "", ONE, "StateConsistency"),
    # AuthorizeAttempt
    Mutant(
        dispatch.authorize_attempt,
        "if job.phase is not Phase.QUEUED:\n        return refuse(Refusal.NOT_QUEUED)\n    "
        "if not job.dispatch_needed:",
        "if False:",
        ONE,
        "TerminalStateIsImmutable",
    ),
    dropped(dispatch.authorize_attempt, "view.coordination.reservation != worker.id", ONE, COUNT),
    Mutant(dispatch.authorize_attempt, "authority=token, ", "", ONE, "StateConsistency"),
    Mutant(dispatch.authorize_attempt, "current_token=token, ", "", ONE, "StateConsistency"),
    Mutant(
        dispatch.authorize_attempt,
        "resumed_from_checkpoint=start > 0",
        "resumed_from_checkpoint=False",
        TWO_ATTEMPTS,
        "ResumeValidity",
    ),
    Mutant(
        dispatch.authorize_attempt,
        "job.checkpoint if job.checkpoint_valid else 0",
        "job.checkpoint",
        TWO_ATTEMPTS,
        COUNT,
    ),
    Mutant(
        dispatch.authorize_attempt,
        "(*view.attempts, attempt)",
        "(attempt,)",
        TWO_ATTEMPTS,
        "AllocatedTokensUsed",
    ),
    # ActivateAttempt
    Mutant(
        dispatch.activate_attempt,
        "if lease.state is LeaseState.LIVE else lease",
        "if False else lease",
        ROOMY,
        "AtMostOneLiveLeasePerJob",
    ),
    Mutant(
        dispatch.activate_attempt,
        "reservation=None",
        "reservation=view.coordination.reservation",
        ONE,
        "PermitSafety",
    ),
    Mutant(
        dispatch.activate_attempt,
        "live_progress_token=token",
        "live_progress_token=view.coordination.live_progress_token",
        ROOMY,
        "LiveProgressCompatibleWithLiveLease",
    ),
    dropped(dispatch.activate_attempt, "view.job.phase is not Phase.RUNNING", ONE, COUNT),
    # the end of a reservation
    Mutant(dispatch.expire_reservation, ", reservation_age=0", "", ONE, "StateConsistency"),
    dropped(
        dispatch.release_reservation,
        "not (cancelled or holder.state is not WorkerState.UP or activated)",
        ONE,
        COUNT,
    ),
    # leases
    Mutant(leases._older, "lease.age < limits.lease_limit", "lease.age <= limits.lease_limit", ONE, "TypeOK"),
    dropped(
        leases.regrant_lease, "not view.current_authority(token)", ROOMY_LOSSES, "AtMostOneLiveLeasePerJob"
    ),
    dropped(
        leases.regrant_lease, "usage.global_used >= limits.global_limit", TWO_JOBS_LOSSES, "PermitSafety"
    ),
    Mutant(
        leases.regrant_lease,
        "lease.state is not LeaseState.LOST",
        "lease.state is LeaseState.LIVE",
        ONE,
        COUNT,
    ),
    Mutant(leases.expire_lease, "LeaseState.EXPIRED", "LeaseState.LOST", ONE, COUNT),
    dropped(
        leases.release_lease,
        "not (stopped or not view.current_authority(token) or view.job.terminal)",
        ONE,
        COUNT,
    ),
]

# Each of these is equivalent: no reachable state tells it from the original. The reason is a fact that the
# explorer confirms. The guards stay: the module has them, and a store may be handed a state no one can reach.
EQUIVALENT = [
    (
        dropped(dispatch.enqueue, "view.job.phase is not Phase.QUEUED", TWO_ATTEMPTS, ""),
        "dispatch_needed holds in Queued alone: AuthorizeAttempt and RequestCancel lower it as they leave "
        "Queued, and only ScheduleRetry, which enters Queued, raises it",
    ),
    (
        dropped(dispatch.enqueue, "not view.job.dispatch_needed", TWO_ATTEMPTS, ""),
        "Queued implies dispatch_needed: StateConsistency",
    ),
    (
        dropped(dispatch.authorize_attempt, "not job.dispatch_needed", TWO_ATTEMPTS, ""),
        "Queued implies dispatch_needed: StateConsistency",
    ),
    (
        dropped(dispatch.authorize_attempt, "job.current_token >= limits.max_attempts", TWO_ATTEMPTS, ""),
        "Queued and RetryWait imply that budget is left: both are entered only while it is, and only "
        "AuthorizeAttempt spends it (in a live system a job's budget may be lowered: the guard is needed)",
    ),
    (
        dropped(dispatch.authorize_attempt, "view.attempt(token) is not None", TWO_ATTEMPTS, ""),
        "no attempt is above current_token: StateConsistency",
    ),
    (
        Mutant(dispatch.reserve, ", reservation_age=0", "", TWO_ATTEMPTS, ""),
        "without a reservation its age is 0: StateConsistency",
    ),
    (
        dropped(dispatch.activate_attempt, "not view.current_authority(token)", TWO_ATTEMPTS, ""),
        "an attempt that is still Authorized is the authority: whatever takes authority from it stops it",
    ),
    (
        Mutant(leases.renew_lease, " or lease.state is not LeaseState.LIVE", "", TWO_ATTEMPTS, ""),
        "only a live lease has an age above 0: TypeOK; the next guard refuses the others",
    ),
    (
        dropped(outcomes._not_answerable, "view.job.cancel_requested", TWO_ATTEMPTS, ""),
        "Running implies that no cancel is requested: StateConsistency",
    ),
    (
        Mutant(
            outcomes.commit_eligible,
            "unfit is None and attempt.stage_state is not StageState.COMPLETE",
            "False",
            TWO_ATTEMPTS,
            "",
        ),
        "SendOutcome asks for success only with a complete stage, progress never falls, and nothing cleans "
        "the stage of the current authority: StagingOwnership",
    ),
    (
        Mutant(credentials.claim_credential_cleanup, "if intent.version_durable:", "if False:", INTENT, ""),
        "no version is durable while an intent is Writing or Written: CredentialLifecycleWellFormed",
    ),
]
