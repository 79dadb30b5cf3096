"""The module's actions on an attempt, for the oracle: next to nothing but its text."""

from collections.abc import Iterator

from tests.model.oracle_state import (
    FAILURES,
    NONE,
    Attempt,
    Constants,
    State,
    Step,
    can_reach,
    changed,
    current_authority,
    global_used,
    terminal,
    up,
)


def of_attempts(c: Constants, s: State) -> Iterator[Step]:
    for a in c.attempts:
        yield from _leases(c, s, a)
        yield from _work(c, s, a)
        yield from _outcomes(c, s, a)
        yield from _ends(c, s, a)


def _leases(c: Constants, s: State, a: Attempt) -> Iterator[Step]:
    j, w, lease = a[0], s["attemptWorker"][a], s["leaseState"][a]
    executing = s["attemptState"][a] == "AttemptExecuting"
    if (
        current_authority(s, a)
        and s["phase"][j] == "Running"
        and s["attemptState"][a] == "AttemptAuthorized"
        and s["reservation"][j] == w
        and up(s, w)
        and can_reach(s, w, "Coordination")
    ):
        yield "ActivateAttempt", _activated(s, a)
    if (
        lease == "LeaseLive"
        and s["leaseAge"][a] > 0
        and current_authority(s, a)
        and executing
        and not terminal(s, j)
        and up(s, w)
        and can_reach(s, w, "Coordination")
    ):
        yield "RenewLease", changed(s, leaseAge=(a, 0))
    if (
        lease == "LeaseLost"
        and current_authority(s, a)
        and s["phase"][j] == "Running"
        and executing
        and up(s, w)
        and can_reach(s, w, "Coordination")
        and can_reach(s, w, "Durable")
        and global_used(s) < c.global_limit
    ):
        yield "RegrantLease", changed(s, leaseState=(a, "LeaseLive"), leaseAge=(a, 0))
    if lease == "LeaseLive" and s["leaseAge"][a] == c.lease_limit:
        yield "ExpireLease", changed(s, leaseState=(a, "LeaseExpired"), leaseAge=(a, 0))
    if lease == "LeaseLive" and (
        s["attemptState"][a] in ("AttemptStopped", "AttemptCommitted")
        or not current_authority(s, a)
        or terminal(s, j)
    ):
        yield "ReleaseLease", changed(s, leaseState=(a, "LeaseExpired"), leaseAge=(a, 0))


def _activated(s: State, a: Attempt) -> State:
    j = a[0]
    leases, ages = {}, {}
    for b, lease in s["leaseState"].items():
        if b == a:
            leases[b] = "LeaseLive"
        elif b[0] == j and lease == "LeaseLive":
            leases[b] = "LeaseExpired"
        else:
            leases[b] = lease
        ages[b] = 0 if b[0] == j else s["leaseAge"][b]
    return changed(
        s,
        reservation=(j, NONE),
        reservationAge=(j, 0),
        leaseState=leases,
        leaseAge=ages,
        liveProgress=(j, s["attemptProgress"][a]),
        liveProgressAttempt=s["liveProgressAttempt"] | {j: a},
        attemptState=(a, "AttemptExecuting"),
    )


def _work(c: Constants, s: State, a: Attempt) -> Iterator[Step]:
    j, w, progress = a[0], s["attemptWorker"][a], s["attemptProgress"][a]
    executing = s["attemptState"][a] == "AttemptExecuting"
    for amount in range(1, c.max_progress + 1):
        if executing and up(s, w) and can_reach(s, w, "Target") and amount > progress:
            stage = "StageComplete" if amount == c.max_progress else "StagePartial"
            yield "AdvanceAttempt", changed(s, attemptProgress=(a, amount), stageState=(a, stage))
    if (
        current_authority(s, a)
        and s["phase"][j] == "Running"
        and executing
        and up(s, w)
        and can_reach(s, w, "Durable")
        and progress > 0
        and (not s["checkpointValid"][j] or s["checkpoint"][j] != progress)
    ):
        yield "PersistCheckpoint", changed(s, checkpoint=(j, progress), checkpointValid=(j, True))
    if (
        current_authority(s, a)
        and s["phase"][j] == "Running"
        and s["leaseState"][a] == "LeaseLive"
        and executing
        and up(s, w)
        and can_reach(s, w, "Coordination")
        and (s["liveProgress"][j] != progress or s["liveProgressAttempt"][j] != a)
    ):
        yield (
            "ReportProgress",
            changed(
                s,
                liveProgress=(j, progress),
                liveProgressAttempt=s["liveProgressAttempt"] | {j: a},
            ),
        )
    if executing and (
        s["leaseState"][a] in ("LeaseExpired", "LeaseLost")
        or s["cancelNotice"][j]
        or (can_reach(s, w, "Durable") and s["cancelRequested"][j])
        or not current_authority(s, a)
    ):
        yield "CooperativeStop", changed(s, attemptState=(a, "AttemptStopped"))


def commit_eligible(s: State, a: Attempt) -> bool:
    j = a[0]
    return bool(
        s["pendingOutcome"][a] == "WantsSuccess"
        and current_authority(s, a)
        and s["phase"][j] == "Running"
        and not s["cancelRequested"][j]
        and s["stageState"][a] == "StageComplete"
    )


def failure_eligible(s: State, a: Attempt) -> bool:
    j = a[0]
    return bool(
        s["pendingOutcome"][a] in FAILURES
        and current_authority(s, a)
        and s["phase"][j] == "Running"
        and not s["cancelRequested"][j]
    )


def _outcomes(c: Constants, s: State, a: Attempt) -> Iterator[Step]:
    j, w, pending = a[0], s["attemptWorker"][a], s["pendingOutcome"][a]
    for outcome in ("WantsSuccess", *FAILURES):
        if (
            s["attemptState"][a] == "AttemptExecuting"
            and pending == "NoOutcome"
            and up(s, w)
            and can_reach(s, w, "Durable")
            and (outcome in FAILURES or s["stageState"][a] == "StageComplete")
        ):
            yield "SendOutcome", changed(s, pendingOutcome=(a, outcome))
    if commit_eligible(s, a):
        yield (
            "AcceptSuccess",
            changed(
                s,
                phase=(j, "Succeeded"),
                authority=s["authority"] | {j: NONE},
                committedAttempt=s["committedAttempt"] | {j: a},
                checkpoint=(j, c.max_progress),
                checkpointValid=(j, True),
                attemptState=(a, "AttemptCommitted"),
                pendingOutcome=(a, "NoOutcome"),
            ),
        )
    if failure_eligible(s, a):
        budget = s["currentToken"][j] < c.max_attempts
        if pending == "WantsPermanentFailure":
            yield "AcceptPermanentFailure", _failed(s, a, "Failed")
        elif budget:
            yield "AcceptRetryableFailureWithBudget", _failed(s, a, "RetryWait")
        elif s["currentToken"][j] == c.max_attempts:
            yield "AcceptRetryableFailureExhausted", _failed(s, a, "Failed")
    if pending != "NoOutcome" and not commit_eligible(s, a) and not failure_eligible(s, a):
        yield "RejectOutcome", changed(s, pendingOutcome=(a, "NoOutcome"))


def _failed(s: State, a: Attempt, phase: str) -> State:
    return changed(
        s,
        phase=(a[0], phase),
        authority=s["authority"] | {a[0]: NONE},
        attemptState=(a, "AttemptStopped"),
        pendingOutcome=(a, "NoOutcome"),
    )


def _ends(c: Constants, s: State, a: Attempt) -> Iterator[Step]:
    j = a[0]
    never_activated = s["attemptState"][a] == "AttemptAuthorized"
    if (
        current_authority(s, a)
        and s["phase"][j] == "Running"
        and s["leaseState"][a] != "LeaseLive"
        and (not never_activated or s["reservation"][j] is NONE)
    ):
        budget = s["currentToken"][j] < c.max_attempts
        yield (
            "ReapLostAttempt",
            changed(
                s,
                phase=(j, "RetryWait" if budget else "Failed"),
                authority=s["authority"] | {j: NONE},
                attemptState=(a, "AttemptStopped" if never_activated else s["attemptState"][a]),
            ),
        )
    if (
        s["stageState"][a] in ("StagePartial", "StageComplete")
        and s["committedAttempt"][j] != a
        and not current_authority(s, a)
        and (
            s["attemptState"][a] == "AttemptStopped"
            or s["workerState"][s["attemptWorker"][a]] == "WorkerDown"
        )
    ):
        yield "CleanupStage", changed(s, stageState=(a, "StageCleaned"))
