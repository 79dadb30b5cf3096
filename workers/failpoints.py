"""Named points before and after every step that crosses from one store to another, for tests to fail at.

Off unless REMORA_FAILPOINTS names a directory. There a file `<point>@<job>` holds what to do when that job
comes by: `kill` (SIGKILL to this process), `stop` (SIGSTOP, until somebody continues it) or `raise`. It is
done once: the file is taken away first.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Final

VARIABLE: Final = "REMORA_FAILPOINTS"
_DIRECTORY: Final = os.environ.get(VARIABLE, "")

POINTS: Final = (
    "enqueue.before",
    "enqueue.after",
    "reserve.before",
    "reserve.after",
    "authorize.after",
    "activate.before",
    "activate.after",
    "executing.after",
    "checkpoint.before",
    "checkpoint.after",
    "handler.after",
    "settle.before",
    "settle.after",
    "stop.before",
    "stop.after",
    "release.before",
    "release.after",
    "reaped.before",
    "reaped.after",
    "scheduled.before",
    "scheduled.after",
    "finalized.before",
    "finalized.after",
    "cleaned.before",
    "cleaned.after",
)
"""In the order of a job's life: intake, context, settlement, then the duties (named for what they have
done).
"""


class FailpointHit(RuntimeError):
    """Raised on demand: an error that nobody expects."""


def failpoint(point: str, job_id: object) -> None:
    """Nothing, unless a test has asked for it."""
    if _DIRECTORY:
        _hit(point, job_id)


def _hit(point: str, job_id: object) -> None:
    asked = Path(_DIRECTORY, f"{point}@{job_id}")
    try:
        action = asked.read_text()
        asked.unlink()
    except FileNotFoundError:
        return
    Path(_DIRECTORY, f"hit-{point}@{job_id}").write_text(str(os.getpid()))
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "stop":
        Path(_DIRECTORY, f"stopped-{os.getpid()}").touch()
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        raise FailpointHit(point)
