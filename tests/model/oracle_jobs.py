"""The module's actions on a job, for the oracle: next to nothing but its text."""

from collections.abc import Iterator

from tests.model.oracle_state import (
    NONE,
    Attempt,
    Constants,
    State,
    Step,
    can_reach,
    capacity_available,
    changed,
    current_authority,
    terminal,
    up,
)


def of_jobs(c: Constants, s: State) -> Iterator[Step]:
    for j in c.jobs:
        yield from _dispatch(c, s, j)
        yield from _phases(s, j)
        yield from _garbage(s, j)


def _dispatch(c: Constants, s: State, j: str) -> Iterator[Step]:
    if (
        s["phase"][j] == "Queued"
        and s["dispatchNeeded"][j]
        and not s["queued"][j]
        and s["reservation"][j] is NONE
    ):
        yield "Enqueue", changed(s, queued=(j, True))
    for w in c.workers:
        if (
            s["queued"][j]
            and s["reservation"][j] is NONE
            and up(s, w)
            and can_reach(s, w, "Coordination")
            and capacity_available(c, s, w)
        ):
            yield "Reserve", changed(s, queued=(j, False), reservation=(j, w), reservationAge=(j, 0))
        a = (j, s["currentToken"][j] + 1)
        if (
            s["phase"][j] == "Queued"
            and s["dispatchNeeded"][j]
            and s["reservation"][j] == w
            and up(s, w)
            and can_reach(s, w, "Durable")
            and s["currentToken"][j] < c.max_attempts
            and s["attemptState"][a] == "AttemptUnused"
        ):
            yield "AuthorizeAttempt", _authorized(c, s, j, w, a)
    if s["reservation"][j] is not NONE and s["reservationAge"][j] == c.reservation_limit:
        yield "ExpireReservation", changed(s, reservation=(j, NONE), reservationAge=(j, 0))
    w, authority = s["reservation"][j], s["authority"][j]
    if w is not NONE and (
        terminal(s, j)
        or s["phase"][j] == "Cancelling"
        or s["workerState"][w] != "WorkerUp"
        or (authority is not NONE and s["attemptState"][authority] != "AttemptAuthorized")
    ):
        yield "ReleaseReservation", changed(s, reservation=(j, NONE), reservationAge=(j, 0))


def _authorized(c: Constants, s: State, j: str, w: str, a: Attempt) -> State:
    valid, checkpoint = s["checkpointValid"][j], s["checkpoint"][j]
    start = checkpoint if valid else 0
    if not valid or checkpoint == 0:
        stage = "StageNone"
    elif checkpoint == c.max_progress:
        stage = "StageComplete"
    else:
        stage = "StagePartial"
    return changed(
        s,
        phase=(j, "Running"),
        currentToken=(j, s["currentToken"][j] + 1),
        authority=s["authority"] | {j: a},
        dispatchNeeded=(j, False),
        attemptState=(a, "AttemptAuthorized"),
        attemptWorker=(a, w),
        attemptProgress=(a, start),
        initialProgress=(a, start),
        resumedFromCheckpoint=(a, valid and checkpoint > 0),
        stageState=(a, stage),
    )


def _phases(s: State, j: str) -> Iterator[Step]:
    phase = s["phase"][j]
    if phase == "RetryWait":
        yield "ScheduleRetry", changed(s, phase=(j, "Queued"), dispatchNeeded=(j, True))
    if phase in ("Queued", "Running", "RetryWait"):
        running = phase == "Running"
        yield (
            "RequestCancel",
            changed(
                s,
                cancelRequested=(j, True),
                phase=(j, "Cancelling" if running else "Cancelled"),
                authority=s["authority"] | {j: s["authority"][j] if running else NONE},
                dispatchNeeded=(j, False),
            ),
        )
    if phase == "Cancelling":
        stopped = {
            a: "AttemptStopped" if a[0] == j and state == "AttemptAuthorized" else state
            for a, state in s["attemptState"].items()
        }
        yield (
            "FinalizeCancel",
            changed(s, phase=(j, "Cancelled"), authority=s["authority"] | {j: NONE}, attemptState=stopped),
        )
    if s["cancelRequested"][j] and not terminal(s, j) and not s["cancelNotice"][j]:
        yield "PublishCancelNotice", changed(s, cancelNotice=(j, True))
    if not terminal(s, j) and s["checkpointValid"][j]:
        yield "InvalidateCheckpoint", changed(s, checkpointValid=(j, False))


def _garbage(s: State, j: str) -> Iterator[Step]:
    a = s["liveProgressAttempt"][j]
    if a is not NONE and not (current_authority(s, a) and s["leaseState"][a] == "LeaseLive"):
        yield (
            "ClearStaleLiveProgress",
            changed(s, liveProgress=(j, 0), liveProgressAttempt=s["liveProgressAttempt"] | {j: NONE}),
        )
    if terminal(s, j) and (
        s["queued"][j]
        or s["reservation"][j] is not NONE
        or s["cancelNotice"][j]
        or s["liveProgress"][j] != 0
        or s["liveProgressAttempt"][j] is not NONE
    ):
        yield (
            "CleanTerminalCoordination",
            changed(
                s,
                queued=(j, False),
                reservation=(j, NONE),
                reservationAge=(j, 0),
                cancelNotice=(j, False),
                liveProgress=(j, 0),
                liveProgressAttempt=s["liveProgressAttempt"] | {j: NONE},
            ),
        )
