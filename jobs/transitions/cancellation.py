"""RequestCancel and FinalizeCancel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.ids import JobId
from jobs.protocol import JobView
from jobs.values import SYSTEM, Actor, Answer


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """Somebody wants a job cancelled, and says why."""

    job_id: JobId
    reason: str = ""


def request_cancel(requests: Sequence[CancelRequest], *, actor: Actor) -> list[Answer[JobView]]:
    """RequestCancel: a waiting job is Cancelled at once, a running one is Cancelling."""
    raise NotImplementedError


def finalize_cancel(
    job_ids: Sequence[JobId], *, actor: Actor = SYSTEM, skip_locked: bool = True
) -> list[Answer[JobView]]:
    """FinalizeCancel: forbid publication for good. It does not claim that the process has stopped."""
    raise NotImplementedError
