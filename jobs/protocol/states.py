"""The values that the protocol's variables take, spelled as in the module and stored as that text."""

from enum import StrEnum


class Phase(StrEnum):
    """A job's durable phase. The last three are terminal and immutable."""

    QUEUED = "Queued"
    RUNNING = "Running"
    RETRY_WAIT = "RetryWait"
    CANCELLING = "Cancelling"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


TERMINAL_PHASES = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED})


class AttemptState(StrEnum):
    """What is known of an attempt's process. The module's AttemptUnused is the absence of a record."""

    AUTHORIZED = "AttemptAuthorized"
    EXECUTING = "AttemptExecuting"
    STOPPED = "AttemptStopped"
    COMMITTED = "AttemptCommitted"


ATTEMPT_UNUSED = "AttemptUnused"


class LeaseState(StrEnum):
    """A lease's state. The module's NoLease is the absence of a record.

    EXPIRED is final. LOST (the CoordinationStore was wiped under it) may be granted again.
    """

    LIVE = "LeaseLive"
    EXPIRED = "LeaseExpired"
    LOST = "LeaseLost"


NO_LEASE = "NoLease"


class StageState(StrEnum):
    """The attempt's own staging area at the target."""

    NONE = "StageNone"
    PARTIAL = "StagePartial"
    COMPLETE = "StageComplete"
    CLEANED = "StageCleaned"


class OutcomeRequest(StrEnum):
    """What an attempt asks to be recorded. Adapters map failure classes to these before the protocol sees
    them.
    """

    NONE = "NoOutcome"
    SUCCESS = "WantsSuccess"
    RETRYABLE_FAILURE = "WantsRetryableFailure"
    PERMANENT_FAILURE = "WantsPermanentFailure"


FAILURE_OUTCOMES = frozenset({OutcomeRequest.RETRYABLE_FAILURE, OutcomeRequest.PERMANENT_FAILURE})


class WorkerState(StrEnum):
    """A worker incarnation's state. DOWN is permanent for that incarnation."""

    UNUSED = "WorkerUnused"
    UP = "WorkerUp"
    DOWN = "WorkerDown"


class Service(StrEnum):
    """The stores a worker reaches over links of their own."""

    COORDINATION = "Coordination"
    DURABLE = "Durable"
    TARGET = "Target"


class LinkState(StrEnum):
    """A worker's link to one service."""

    UP = "LinkUp"
    DOWN = "LinkDown"
    RECOVERED = "LinkRecovered"
