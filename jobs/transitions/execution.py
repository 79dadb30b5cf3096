"""AdvanceAttempt, PersistCheckpoint, InvalidateCheckpoint, CooperativeStop: what an executing attempt has recorded.

Units. A handler counts the bytes it has staged. The store counts protocol units: those bytes from where the attempt's
count began, plus one for the sealed manifest. The two differ only after a checkpoint was invalidated in mid-attempt,
when the handler starts again from zero while the protocol's progress may only grow: `Attempt.progress_base` is that
difference. Requests and grants are in the handler's units.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.ids import JobId
from jobs.protocol import Fence, JobView
from jobs.protocol.states import LeaseState
from jobs.values import Actor, Answer, Member


@dataclass(frozen=True, slots=True)
class CheckpointRequest:
    """Progress, its proof, and the members sealed since the last checkpoint; all of it durable at the target."""

    fence: Fence
    progress: int
    proof: Mapping[str, Any]
    members: Sequence[Member] = ()
    bytes_sent: int | None = None


@dataclass(frozen=True, slots=True)
class StageCompleteRequest:
    """The manifest is sealed: `total` bytes are staged."""

    fence: Fence
    total: int


@dataclass(frozen=True, slots=True)
class InvalidateRequest:
    """No later attempt may start from the checkpoint. With a token: only while that attempt is the authority."""

    job_id: JobId
    why: str
    token: int | None = None


@dataclass(frozen=True, slots=True)
class StopReport:
    """An attempt's process has stopped. `lease` is what its worker knows of its lease, None if nothing was wrong."""

    fence: Fence
    lease: LeaseState | None = None
    cancel_notice: bool = False
    why: str = ""


def persist_checkpoint(
    requests: Sequence[CheckpointRequest], *, actor: Actor | None = None
) -> list[Answer[JobView]]:
    """AdvanceAttempt and PersistCheckpoint in one transaction, with the members. Refused means fenced.

    Accepted as well when it is there already (a repeat), and with progress 0, which records members and no checkpoint.
    """
    raise NotImplementedError


def record_stage_complete(
    requests: Sequence[StageCompleteRequest], *, actor: Actor | None = None
) -> list[Answer[JobView]]:
    """AdvanceAttempt to max_progress. Also part of `settle`, which takes the total; a repeat is accepted."""
    raise NotImplementedError


def invalidate_checkpoint(
    requests: Sequence[InvalidateRequest], *, actor: Actor | None = None
) -> list[Answer[JobView]]:
    """InvalidateCheckpoint. With a token also forgets the members that attempt recorded and counts from zero again.

    Accepted, with nothing to do, where the checkpoint is not valid already.
    """
    raise NotImplementedError


def cooperative_stop(
    reports: Sequence[StopReport], *, actor: Actor | None = None
) -> list[Answer[JobView]]:
    """CooperativeStop: record that the attempt's process has stopped, for a reason the module knows.

    A repeat is accepted.
    """
    raise NotImplementedError
