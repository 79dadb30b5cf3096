"""CleanupStage, in two steps: what may be deleted, and that it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs.ids import AttemptId
from jobs.protocol import Fence, JobView
from jobs.values import SYSTEM, Actor, Answer


@dataclass(frozen=True, slots=True)
class StageToClean:
    """A stage that nothing may rely on any more. Its recorded members: queries.staged_members(attempt_id)."""

    fence: Fence
    attempt_id: AttemptId
    kind: str
    spec: Mapping[str, Any]
    location: str


def begin_cleanup(fences: Sequence[Fence], *, skip_locked: bool = True) -> list[Answer[StageToClean]]:
    """Which of these stages may be deleted now. Once true it stays true, so deleting needs no lock. Writes nothing.

    Declined with STAGE_STILL_NEEDED while the job's valid checkpoint names that stage and a next attempt may adopt it.
    """
    raise NotImplementedError


def cleanup_stage(
    fences: Sequence[Fence], *, actor: Actor = SYSTEM, skip_locked: bool = True
) -> list[Answer[JobView]]:
    """CleanupStage: the stage has been deleted. Decided again, recorded, and its ledger forgotten."""
    raise NotImplementedError
