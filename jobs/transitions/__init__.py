"""One function per durable action: lock, observe, decide, write, journal, commit. Batch first.

How to call them. Each takes a sequence of requests (one is the usual case) and gives a list of answers in
their order: `answer.accepted` with `.value`, or `answer.refused` with `.reason` (a conjunct of the module, or
why the row does not fit the request). A refusal changed nothing. The transaction is theirs: calling one
inside another transaction is an error, because what is sent after the answer must not be rolled back. A
serialisation failure, a deadlock or a lost connection is retried inside; after the last try
DurableStoreUnavailable is raised, and every one of these may be called again with the same request: what is
done already is accepted or refused, never done twice.

What may not live here: guards (jobs.protocol has them), SQL (jobs.store), Redis, Celery. `observe` reads the
CoordinationStore for the ones that compare with it, and is called once the row locks are held.
"""

from jobs.transitions.cancellation import CancelRequest, finalize_cancel, request_cancel
from jobs.transitions.cleanup import StageToClean, begin_cleanup, cleanup_stage
from jobs.transitions.dispatch import (
    AuthorizeRequest,
    Grant,
    Offer,
    ResumeFrom,
    authorize_attempt,
    enqueue,
    record_activated,
)
from jobs.transitions.execution import (
    CheckpointRequest,
    InvalidateRequest,
    StageCompleteRequest,
    StopReport,
    cooperative_stop,
    invalidate_checkpoint,
    persist_checkpoint,
    record_stage_complete,
)
from jobs.transitions.fleet import IncarnationFacts, declare_down, start_incarnation
from jobs.transitions.outcomes import Settled, SettleRequest, process_outcome, send_outcome, settle
from jobs.transitions.recovery import reap_lost_attempt, schedule_retry

__all__ = [
    "AuthorizeRequest",
    "CancelRequest",
    "CheckpointRequest",
    "Grant",
    "IncarnationFacts",
    "InvalidateRequest",
    "Offer",
    "ResumeFrom",
    "SettleRequest",
    "Settled",
    "StageCompleteRequest",
    "StageToClean",
    "StopReport",
    "authorize_attempt",
    "begin_cleanup",
    "cleanup_stage",
    "cooperative_stop",
    "declare_down",
    "enqueue",
    "finalize_cancel",
    "invalidate_checkpoint",
    "persist_checkpoint",
    "process_outcome",
    "reap_lost_attempt",
    "record_activated",
    "record_stage_complete",
    "request_cancel",
    "schedule_retry",
    "send_outcome",
    "settle",
    "start_incarnation",
]
