"""The journal in the module's own words, one JSON object per step, for any other checker of the module.

Names of actions, variables and values are the module's. A variable of an attempt is an object from token to
value. An attempt is named by its token, with NoAttempt for none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, TextIO

from django.db import connection

from jobs.ids import JobId
from jobs.protocol.states import ATTEMPT_UNUSED, OutcomeRequest, StageState

ROWS_PER_PAGE: Final = 5_000

VARIABLES: Final = {
    "phase": "phase",
    "cancel_requested": "cancelRequested",
    "current_token": "currentToken",
    "authority": "authority",
    "dispatch_needed": "dispatchNeeded",
    "committed": "committedAttempt",
    "checkpoint": "checkpoint",
    "checkpoint_valid": "checkpointValid",
}
ATTEMPT_VARIABLES: Final = {
    "state": "attemptState",
    "worker": "attemptWorker",
    "progress": "attemptProgress",
    "initial_progress": "initialProgress",
    "resumed_from_checkpoint": "resumedFromCheckpoint",
    "stage_state": "stageState",
    "pending_outcome": "pendingOutcome",
}
_UNUSED: Final[Mapping[str, Any]] = {
    "attemptState": ATTEMPT_UNUSED,
    "attemptWorker": "NoWorker",
    "attemptProgress": 0,
    "initialProgress": 0,
    "resumedFromCheckpoint": False,
    "stageState": StageState.NONE,
    "pendingOutcome": OutcomeRequest.NONE,
}


def export(out: TextIO, job_id: JobId | None = None) -> int:
    """Write the history to `out`, in the journal's order; the number of steps written."""
    count = 0
    for row in _rows(job_id):
        out.write(json.dumps(_step(*row), separators=(",", ":")) + "\n")
        count += 1
    return count


def _rows(job_id: JobId | None) -> Iterator[tuple[Any, ...]]:
    after = 0
    only, parameters = ("AND job_id = %s ", [job_id]) if job_id else ("", [])
    while True:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT seq, at, action, job_id, token, actor_kind, actor_id, incarnation, params::text,"  # noqa: S608
                " observed::text, before::text, after::text FROM jobs_protocolevent"
                f" WHERE seq > %s {only}ORDER BY seq LIMIT %s",
                [after, *parameters, ROWS_PER_PAGE],
            )
            rows = cursor.fetchall()
        yield from rows
        if len(rows) < ROWS_PER_PAGE:
            return
        after = rows[-1][0]


def _step(
    seq: int, at: Any, action: str, job: Any, token: int, kind: str, actor: str, incarnation: Any, *texts: str
) -> dict[str, Any]:
    params, observed, before, after = (json.loads(text) for text in texts)
    was, now = in_modules_words(before, after)
    return {
        "seq": seq,
        "at": at.isoformat(),
        "action": action,
        "job": None if job is None else str(job),
        "token": token or None,
        "incarnation": None if incarnation is None else str(incarnation),
        "actor": {"kind": kind, "id": actor},
        "params": params,
        "observed": observed,
        "before": was,
        "after": now,
    }


def in_modules_words(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Both sides of a step. What an attempt was before it was allocated is said too."""
    was: dict[str, Any] = {}
    now: dict[str, Any] = {}
    for key, value in after.items():
        scope, _, name = key.rpartition(".")
        if scope == "job":
            variable = VARIABLES[name]
            now[variable] = _attempt(variable, value)
            if key in before:
                was[variable] = _attempt(variable, before[key])
        elif scope == "worker":
            was["workerState"], now["workerState"] = before[key], value
        else:
            variable, token = ATTEMPT_VARIABLES[name], scope.removeprefix("attempt.")
            now.setdefault(variable, {})[token] = value
            was.setdefault(variable, {})[token] = before.get(key, _UNUSED[variable])
    return was, now


def _attempt(variable: str, value: Any) -> Any:
    return "NoAttempt" if value == 0 and variable in ("authority", "committedAttempt") else value
