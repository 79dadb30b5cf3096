"""Takes the steps of one job's history again, through the pure functions that took them. Reads no store.

A step is allowed if its function accepts it on the replayed state, given what was observed then, and if it
changes exactly the variables that the journal says it changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from enum import StrEnum
from typing import Any, Final

from jobs import protocol
from jobs.journal import INIT, JOB_FIELDS, read_coordination, read_worker, view_changes
from jobs.protocol import (
    UNBOUNDED,
    Accepted,
    AttemptRecord,
    Decision,
    JobRecord,
    JobView,
    Limits,
    Refused,
    WorkerRecord,
)
from jobs.protocol.invariants import broken_durably
from jobs.protocol.properties import broken_step
from jobs.protocol.states import AttemptState, OutcomeRequest, WorkerState

CRASH: Final = "CrashWorker"
START: Final = "StartIncarnation"
_MAY_RUN: Final = (AttemptState.AUTHORIZED, AttemptState.EXECUTING)
_INITIAL: Final = {f"job.{name}": getattr(JobRecord(), name) for name in JOB_FIELDS}


@dataclass(frozen=True, slots=True)
class Event:
    """A row of the journal."""

    seq: int
    action: str
    token: int
    incarnation: str | None
    params: Mapping[str, Any]
    observed: Mapping[str, Any]
    before: Mapping[str, Any]
    after: Mapping[str, Any]

    @property
    def worker(self) -> WorkerRecord:
        return read_worker(self.observed)

    @property
    def limits(self) -> Limits:
        return Limits(
            max_attempts=self.params.get("max_attempts", UNBOUNDED),
            max_progress=self.params.get("max_progress", UNBOUNDED),
        )


def _plain(changes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: str(value) if isinstance(value, StrEnum) else value for name, value in changes.items()}


Retake = Callable[[JobView, Event], Decision[JobView]]


def _stopped_by_crash(view: JobView, event: Event) -> Decision[JobView]:
    """CrashWorker's effect on one attempt: the journal has a row for each."""
    crashed = protocol.declare_down(event.worker)
    if isinstance(crashed, Refused):
        return crashed
    others = tuple(a for a in view.attempts if a.token != event.token)
    only = replaced(view, attempts=tuple(a for a in view.attempts if a.token == event.token))
    stopped = protocol.stop_attempts_of(only, event.worker.id)
    attempts = tuple(sorted((*others, *stopped.attempts), key=lambda a: a.token))
    return Accepted(replaced(view, attempts=attempts))


RETAKE: Final[Mapping[str, Retake]] = {
    "AuthorizeAttempt": lambda v, e: protocol.authorize_attempt(v, e.worker, e.limits),
    "ActivateAttempt": lambda v, e: protocol.activate_attempt(v, e.token, e.worker),
    "AdvanceAttempt": lambda v, e: protocol.advance_attempt(
        v, e.token, e.params["amount"], e.worker, e.limits
    ),
    "PersistCheckpoint": lambda v, e: protocol.persist_checkpoint(v, e.token, e.worker),
    "InvalidateCheckpoint": lambda v, e: protocol.invalidate_checkpoint(v),
    "CooperativeStop": lambda v, e: protocol.cooperative_stop(v, e.token, e.worker),
    "SendOutcome": lambda v, e: protocol.send_outcome(
        v, e.token, OutcomeRequest(e.params["outcome"]), e.worker
    ),
    "AcceptSuccess": lambda v, e: protocol.accept_success(v, e.token, e.limits),
    "AcceptPermanentFailure": lambda v, e: protocol.accept_permanent_failure(v, e.token, e.limits),
    "AcceptRetryableFailureWithBudget": lambda v, e: protocol.accept_retryable_failure_with_budget(
        v, e.token, e.limits
    ),
    "AcceptRetryableFailureExhausted": lambda v, e: protocol.accept_retryable_failure_exhausted(
        v, e.token, e.limits
    ),
    "RejectOutcome": lambda v, e: protocol.reject_outcome(v, e.token),
    "ReapLostAttempt": lambda v, e: protocol.reap_lost_attempt(v, e.token, e.limits),
    "ScheduleRetry": lambda v, e: protocol.schedule_retry(v),
    CRASH: _stopped_by_crash,
    "RequestCancel": lambda v, e: protocol.request_cancel(v),
    "FinalizeCancel": lambda v, e: protocol.finalize_cancel(v),
    "CleanupStage": lambda v, e: protocol.cleanup_stage(v, e.token, e.worker),
}
"""Each durable action's pure function, called with what the journal kept of its arguments."""


@dataclass(slots=True)
class Replay:
    """One job's state, as far as its history has been taken again. `wrong` says what is not as it should."""

    max_attempts: int
    started: bool = False
    job: JobRecord = field(default_factory=JobRecord)
    attempts: dict[int, AttemptRecord] = field(default_factory=dict)
    may_run: set[int] = field(default_factory=set)
    wrong: str = ""

    def take(self, event: Event) -> bool:
        """Take one more step; False if it was not allowed, after which nothing of this job can be judged."""
        try:
            self.wrong = self._init(event) if event.action == INIT else self._step(event)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            self.wrong = f"the row cannot be read: {type(error).__name__} {error}"
        return not self.wrong

    def _init(self, event: Event) -> str:
        if self.started:
            return "a job is accepted once"
        if (event.before, event.after) != ({}, _INITIAL):
            return f"a job does not begin like this: {dict(event.after)}"
        self.started = True
        return ""

    def _step(self, event: Event) -> str:
        if not self.started:
            return "the history does not begin with Init"
        retake = RETAKE.get(event.action)
        if retake is None:
            return "no durable action has this name"
        before = self._view(event)
        decision = retake(before, event)
        if isinstance(decision, Refused):
            return f"not allowed: {decision.reason}"
        after = decision.value
        was, now = view_changes(before, after)
        if was != event.before:
            return f"changed from {dict(event.before)}; replayed it changes from {_plain(was)}"
        if now != event.after:
            return f"changed to {dict(event.after)}; replayed it changes to {_plain(now)}"
        return self._keep(before, after, event)

    def _view(self, event: Event) -> JobView:
        """What the store loads for a step: attempts that may run, the authority, and the one that acts."""
        tokens = sorted(self.may_run | {event.token, self.job.authority})
        attempts = tuple(self.attempts[token] for token in tokens if token in self.attempts)
        return JobView(self.job, attempts, read_coordination(event.observed))

    def _keep(self, before: JobView, after: JobView, event: Event) -> str:
        limits = replaced(event.limits, max_attempts=self.max_attempts)
        if broken := broken_durably(after, limits):
            return f"breaks {', '.join(broken)}"
        if broken := broken_step(before, after, event.limits):
            return f"breaks {', '.join(broken)}"
        self.job = after.job
        for attempt in after.attempts:
            self.attempts[attempt.token] = attempt
            if attempt.state in _MAY_RUN:
                self.may_run.add(attempt.token)
            else:
                self.may_run.discard(attempt.token)
        return ""

    def differs_from(self, job: JobRecord, attempts: Mapping[int, AttemptRecord]) -> str:
        """How the rows differ from what their history gives; empty when they are equal."""
        if not self.started:
            return "the job has no history"
        replayed = JobView(self.job, tuple(self.attempts[token] for token in sorted(self.attempts)))
        stored = JobView(job, tuple(attempts[token] for token in sorted(attempts)))
        if replayed == stored:
            return ""
        was, now = view_changes(replayed, stored)
        missing = sorted(set(self.attempts) - set(attempts))
        lost = f"; attempts {missing} are not stored" if missing else ""
        return f"its history gives {_plain(was)}, stored is {_plain(now)}{lost}"


@dataclass(slots=True)
class Incarnations:
    """The lives of worker incarnations, as the journal has them: first Up, then perhaps Down, and no more."""

    state: dict[str, WorkerState] = field(default_factory=dict)
    down_seq: dict[str, int] = field(default_factory=dict)

    def take(self, event: Event) -> str:
        id_ = event.incarnation
        if id_ is None:
            return "no incarnation is named"
        known = WorkerRecord(id_, self.state.get(id_, WorkerState.UNUSED))
        retake = {START: protocol.start_incarnation, CRASH: protocol.declare_down}.get(event.action)
        if retake is None:
            return "no action of an incarnation has this name"
        decision = retake(known)
        if isinstance(decision, Refused):
            return f"not allowed: {decision.reason}"
        if event.after.get("worker.state") != decision.value.state:
            return f"changed to {dict(event.after)}; replayed it changes to {decision.value.state}"
        self.state[id_] = decision.value.state
        if event.action == CRASH:
            self.down_seq[id_] = event.seq
        return ""

    def misses(self, event: Event) -> str:
        """An attempt must be given to an incarnation that was started and is not Down yet."""
        if event.action != "AuthorizeAttempt":
            return ""
        id_ = str(event.observed["worker"]["id"])
        if id_ not in self.state:
            return f"incarnation {id_} was never started"
        if self.down_seq.get(id_, event.seq) < event.seq:
            return f"incarnation {id_} had been declared down"
        return ""
