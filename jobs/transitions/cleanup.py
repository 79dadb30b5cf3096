"""CleanupStage, in two steps: what may be deleted, and that it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs import protocol, store
from jobs.held import HeldJob
from jobs.ids import AttemptId
from jobs.protocol import Accepted, Fence, JobView, Refused
from jobs.store import Batch
from jobs.values import SYSTEM, Actor, Answer, Declined, Unasked


@dataclass(frozen=True, slots=True)
class StageToClean:
    """A stage that nothing may rely on any more. Its recorded members: queries.staged_members(attempt_id)."""

    fence: Fence
    attempt_id: AttemptId
    kind: str
    spec: Mapping[str, Any]
    location: str


def begin_cleanup(fences: Sequence[Fence], *, skip_locked: bool = True) -> list[Answer[StageToClean]]:
    """Which of these stages may be deleted now. Once true it stays true, so deleting needs no lock. Writes
    nothing.

    Declined with STAGE_STILL_NEEDED while the job's valid checkpoint names that stage and a next attempt may
    adopt it.
    """

    def one(batch: Batch, fence: Fence) -> Answer[StageToClean]:
        found = _cleanable(batch, fence)
        if not isinstance(found, tuple):
            return found
        job, row = found[0], found[0].rows[fence.token]
        return Accepted(StageToClean(fence, row.id, row.kind, job.row.spec, row.stage_location))

    def work(batch: Batch) -> list[Answer[StageToClean]]:
        return [one(batch, fence) for fence in fences]

    return store.act(store.distinct(fences), work, fences=fences, skip_locked=skip_locked, bodies=True)


def cleanup_stage(
    fences: Sequence[Fence], *, actor: Actor = SYSTEM, skip_locked: bool = True
) -> list[Answer[JobView]]:
    """CleanupStage: the stage has been deleted. Decided again, recorded, and its ledger forgotten."""

    def one(batch: Batch, fence: Fence) -> Answer[JobView]:
        found = _cleanable(batch, fence)
        if not isinstance(found, tuple):
            return found
        job, decision = found
        job.take("CleanupStage", decision, token=fence.token, worker=job.worker_of(fence.token))
        job.set_attempt(fence.token, stage_cleaned_at=job.now)
        batch.forget_members(job.rows[fence.token].id)
        return decision

    def work(batch: Batch) -> list[Answer[JobView]]:
        return [one(batch, fence) for fence in fences]

    return store.act(store.distinct(fences), work, fences=fences, actor=actor, skip_locked=skip_locked)


def _cleanable(batch: Batch, fence: Fence) -> tuple[HeldJob, Accepted[JobView]] | Refused | Declined:
    found = batch.find_attempt(fence)
    if isinstance(found, Declined):
        return found
    job = found[0]
    resumable = job.job.checkpoint_valid and not job.job.terminal
    # The module starts a successor "with" the checkpoint's stage. Until a successor has made the members its
    # own (its first checkpoint names its own stage), the predecessor's must stay.
    if resumable and job.row.checkpoint_token == fence.token:
        return Declined(Unasked.STAGE_STILL_NEEDED)
    decision = protocol.cleanup_stage(job.view, fence.token, job.worker_of(fence.token))
    return (job, decision) if isinstance(decision, Accepted) else decision
