"""Which steps one job's slice may take: every action of the module, for every value that its parameters may
have.

Nothing is decided here. Each action's pure function is asked, by the name under which it is registered, and
what it accepts is a step. The table groups actions by what their functions are told, because that is what an
answer can be remembered by: the view alone; one worker besides; the permits in use besides.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from jobs.protocol.bounds import Bounds
from jobs.protocol.decision import ACTIONS
from jobs.protocol.records import JobView, Usage, WorkerRecord
from jobs.protocol.states import OutcomeRequest

OF_VIEW: Final = (
    "Enqueue",
    "ScheduleRetry",
    "RequestCancel",
    "FinalizeCancel",
    "PublishCancelNotice",
    "InvalidateCheckpoint",
    "ClearStaleLiveProgress",
    "CleanTerminalCoordination",
)
OF_VIEW_AND_LIMITS: Final = ("ExpireReservation",)
OF_TOKEN: Final = ("ReleaseLease", "RejectOutcome")
OF_TOKEN_AND_LIMITS: Final = (
    "ExpireLease",
    "ReapLostAttempt",
    "AcceptSuccess",
    "AcceptPermanentFailure",
    "AcceptRetryableFailureWithBudget",
    "AcceptRetryableFailureExhausted",
)
OF_WORKER: Final = ("ReleaseReservation",)
OF_WORKER_AND_LIMITS: Final = ("AuthorizeAttempt",)
OF_TOKEN_AND_ITS_WORKER: Final = (
    "ActivateAttempt",
    "RenewLease",
    "PersistCheckpoint",
    "ReportProgress",
    "CooperativeStop",
    "CleanupStage",
)
ADVANCE, SEND, RESERVE, REGRANT = "AdvanceAttempt", "SendOutcome", "Reserve", "RegrantLease"
REQUESTS: Final = tuple(outcome for outcome in OutcomeRequest if outcome is not OutcomeRequest.NONE)

Function = Callable[..., Any]
Steps = list[tuple[int, JobView]]


class Label(NamedTuple):
    """One instance of an action: its name and its parameters (job first where it has one)."""

    action: str
    params: tuple[tuple[str, str | int], ...] = ()

    def __str__(self) -> str:
        return f"{self.action}({', '.join(str(value) for _, value in self.params)})"


class Labels:
    """Numbers the action instances, so that a step can be remembered by a small int."""

    def __init__(self) -> None:
        self._numbers: dict[Label, int] = {}
        self.all: list[Label] = []

    def number(self, action: str, **params: str | int) -> int:
        label = Label(action, tuple(params.items()))
        if label not in self._numbers:
            self._numbers[label] = len(self.all)
            self.all.append(label)
        return self._numbers[label]


class JobSteps:
    """The steps of one job within bounds. Labels are without the job, which the world knows."""

    def __init__(self, bounds: Bounds, labels: Labels) -> None:
        self.limits = bounds.limits
        self._labels = labels
        self._of_view = self._numbered(OF_VIEW)
        self._of_view_and_limits = self._numbered(OF_VIEW_AND_LIMITS)
        tokens = range(bounds.max_attempts + 1)
        self._of_token = [self._numbered(OF_TOKEN, token=token) for token in tokens]
        self._of_token_and_limits = [self._numbered(OF_TOKEN_AND_LIMITS, token=token) for token in tokens]
        self._of_token_and_worker = [self._numbered(OF_TOKEN_AND_ITS_WORKER, token=token) for token in tokens]
        self._advances = [self._numbered_advances(token, bounds.max_progress) for token in tokens]
        self._sends = [self._numbered_sends(token) for token in tokens]
        self._of_worker = {worker: self._numbered(OF_WORKER, worker=worker) for worker in bounds.worker_ids}
        self._of_worker_and_limits = {
            worker: self._numbered(OF_WORKER_AND_LIMITS, worker=worker) for worker in bounds.worker_ids
        }
        self._advance, self._send = ACTIONS[ADVANCE].function, ACTIONS[SEND].function
        self._reserve, self._regrant = ACTIONS[RESERVE].function, ACTIONS[REGRANT].function

    def _numbered(self, names: tuple[str, ...], **params: str | int) -> list[tuple[int, Function]]:
        return [(self._labels.number(name, **params), ACTIONS[name].function) for name in names]

    def _numbered_advances(self, token: int, max_progress: int) -> list[tuple[int, int]]:
        amounts = range(1, max_progress + 1)
        return [(self._labels.number(ADVANCE, token=token, amount=amount), amount) for amount in amounts]

    def _numbered_sends(self, token: int) -> list[tuple[int, OutcomeRequest]]:
        return [
            (self._labels.number(SEND, token=token, outcome=request.value), request) for request in REQUESTS
        ]

    def of_view(self, view: JobView) -> Steps:
        """Steps that depend on nothing but the job's slice."""
        limits, steps = self.limits, Steps()
        for label, function in self._of_view:
            if (decision := function(view)).accepted:
                steps.append((label, decision.value))
        for label, function in self._of_view_and_limits:
            if (decision := function(view, limits)).accepted:
                steps.append((label, decision.value))
        for attempt in view.attempts:
            token = attempt.token
            for label, function in self._of_token[token]:
                if (decision := function(view, token)).accepted:
                    steps.append((label, decision.value))
            for label, function in self._of_token_and_limits[token]:
                if (decision := function(view, token, limits)).accepted:
                    steps.append((label, decision.value))
        return steps

    def of_worker(self, view: JobView, worker: WorkerRecord) -> Steps:
        """Steps that depend on one worker besides: those it asks for, and those of the attempts that it
        runs.
        """
        steps = Steps()
        for label, function in self._of_worker[worker.id]:
            if (decision := function(view, worker)).accepted:
                steps.append((label, decision.value))
        for label, function in self._of_worker_and_limits[worker.id]:
            if (decision := function(view, worker, self.limits)).accepted:
                steps.append((label, decision.value))
        for attempt in view.attempts:
            if attempt.worker == worker.id:
                self._add_run(steps, view, attempt.token, worker)
        return steps

    def _add_run(self, steps: Steps, view: JobView, token: int, worker: WorkerRecord) -> None:
        for label, function in self._of_token_and_worker[token]:
            if (decision := function(view, token, worker)).accepted:
                steps.append((label, decision.value))
        for label, amount in self._advances[token]:
            if (decision := self._advance(view, token, amount, worker, self.limits)).accepted:
                steps.append((label, decision.value))
        for label, outcome in self._sends[token]:
            if (decision := self._send(view, token, outcome, worker)).accepted:
                steps.append((label, decision.value))

    def of_permits(self, view: JobView, worker: WorkerRecord, usage: Usage) -> Steps:
        """Steps that depend on the permits in use besides."""
        steps = Steps()
        if (decision := self._reserve(view, worker, usage, self.limits)).accepted:
            steps.append((self._labels.number(RESERVE, worker=worker.id), decision.value))
        for attempt in view.attempts:
            if attempt.worker == worker.id:
                decision = self._regrant(view, attempt.token, worker, usage, self.limits)
                if decision.accepted:
                    steps.append((self._labels.number(REGRANT, token=attempt.token), decision.value))
        return steps
