"""The protocol, written once: every action of the module as a pure function.

What may live here: values, guards, effects, invariants, and the explorer that walks them. Standard library
only. No Django, clock, identity, chance, I/O or log: those enter at the edges and travel as arguments. The
durable store, the Lua scripts (held equal by tests), the explorer and the audit all go through these
functions; a guard that exists anywhere else is a defect.
"""

from jobs.protocol import (  # noqa: F401  (importing an action module registers its actions)
    cancellation,
    cleanup,
    dispatch,
    execution,
    faults,
    leases,
    outcomes,
    recovery,
)
from jobs.protocol.cancellation import finalize_cancel, publish_cancel_notice, request_cancel
from jobs.protocol.cleanup import clean_terminal_coordination, cleanup_stage, clear_stale_live_progress
from jobs.protocol.decision import ACTIONS, Accepted, Decision, Refusal, Refused
from jobs.protocol.dispatch import (
    activate_attempt,
    authorize_attempt,
    enqueue,
    expire_reservation,
    release_reservation,
    reserve,
)
from jobs.protocol.execution import (
    advance_attempt,
    cooperative_stop,
    invalidate_checkpoint,
    persist_checkpoint,
    report_progress,
)
from jobs.protocol.leases import expire_lease, regrant_lease, release_lease, renew_lease, tick
from jobs.protocol.outcomes import (
    accept_permanent_failure,
    accept_retryable_failure_exhausted,
    accept_retryable_failure_with_budget,
    accept_success,
    commit_eligible,
    failure_eligible,
    process_outcome,
    reject_outcome,
    send_outcome,
)
from jobs.protocol.records import (
    NO_TOKEN,
    UNBOUNDED,
    AttemptRecord,
    CoordinationRecord,
    Fence,
    JobRecord,
    JobView,
    LeaseRecord,
    Limits,
    Usage,
    WorkerId,
    WorkerRecord,
)
from jobs.protocol.recovery import (
    declare_down,
    reap_lost_attempt,
    schedule_retry,
    start_incarnation,
    stop_attempts_of,
)

__all__ = [
    "ACTIONS",
    "NO_TOKEN",
    "UNBOUNDED",
    "Accepted",
    "AttemptRecord",
    "CoordinationRecord",
    "Decision",
    "Fence",
    "JobRecord",
    "JobView",
    "LeaseRecord",
    "Limits",
    "Refusal",
    "Refused",
    "Usage",
    "WorkerId",
    "WorkerRecord",
    "accept_permanent_failure",
    "accept_retryable_failure_exhausted",
    "accept_retryable_failure_with_budget",
    "accept_success",
    "activate_attempt",
    "advance_attempt",
    "authorize_attempt",
    "clean_terminal_coordination",
    "cleanup_stage",
    "clear_stale_live_progress",
    "commit_eligible",
    "cooperative_stop",
    "declare_down",
    "enqueue",
    "expire_lease",
    "expire_reservation",
    "failure_eligible",
    "finalize_cancel",
    "invalidate_checkpoint",
    "persist_checkpoint",
    "process_outcome",
    "publish_cancel_notice",
    "reap_lost_attempt",
    "regrant_lease",
    "reject_outcome",
    "release_lease",
    "release_reservation",
    "renew_lease",
    "report_progress",
    "request_cancel",
    "reserve",
    "schedule_retry",
    "send_outcome",
    "start_incarnation",
    "stop_attempts_of",
    "tick",
]
