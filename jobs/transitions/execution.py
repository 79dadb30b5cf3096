"""AdvanceAttempt, PersistCheckpoint, InvalidateCheckpoint, CooperativeStop: what an executing attempt has
recorded.

Units. A handler counts the bytes it has staged. The store counts protocol units: those bytes from where the
attempt's count began, plus one for the sealed manifest. The two differ only after a checkpoint was
invalidated in mid-attempt, when the handler starts again from zero while the protocol's progress may only
grow: `Attempt.progress_base` is that difference. Requests and grants are in the handler's units.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from jobs import members_ledger, protocol, store
from jobs.held import HeldJob
from jobs.ids import JobId
from jobs.members_ledger import MEMBERS
from jobs.policy import clean_text
from jobs.protocol import (
    Accepted,
    AttemptRecord,
    CoordinationRecord,
    Decision,
    Fence,
    JobView,
    LeaseRecord,
    Refusal,
    Refused,
    WorkerRecord,
)
from jobs.protocol.states import AttemptState, LeaseState, StageState
from jobs.store import Batch
from jobs.values import Actor, Answer, AttemptEnd, Declined, Member

Q = TypeVar("Q")


@dataclass(frozen=True, slots=True)
class CheckpointRequest:
    """Progress, its proof, and the members sealed since the last checkpoint; all durable at the target."""

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
    """No later attempt may start from the checkpoint. With a token: only while that attempt has authority."""

    job_id: JobId
    why: str
    token: int | None = None


@dataclass(frozen=True, slots=True)
class StopReport:
    """An attempt's process has stopped. `lease` is what its worker knows of its lease, None if nothing was
    wrong.
    """

    fence: Fence
    lease: LeaseState | None = None
    cancel_notice: bool = False
    why: str = ""


def persist_checkpoint(
    requests: Sequence[CheckpointRequest], *, actor: Actor | None = None
) -> list[Answer[JobView]]:
    """AdvanceAttempt and PersistCheckpoint in one transaction, with the members. Refused means fenced.

    Accepted as well when it is there already (a repeat), and with progress 0, which records members and no
    checkpoint.
    """
    return _on_attempts([request.fence for request in requests], requests, _checkpoint, actor)


def _checkpoint(
    batch: Batch, job: HeldJob, attempt: AttemptRecord, request: CheckpointRequest
) -> Answer[JobView]:
    token, worker = attempt.token, job.worker_of(attempt.token)
    if (fenced := _fenced(job, attempt)) is not None:
        return Refused(fenced)
    advance(job, attempt, request.progress, worker)
    decision = job.take(
        "PersistCheckpoint", protocol.persist_checkpoint(job.view, token, worker), token=token, worker=worker
    )
    # Refused with one of these two every guard before it held: there is a stage, and nothing new to resume
    # from.
    if isinstance(decision, Refused) and decision.reason not in (
        Refusal.NOTHING_CHANGED,
        Refusal.NO_PROGRESS,
    ):
        return decision
    if job.job.checkpoint_valid and job.job.checkpoint == job.the_attempt(token).progress:
        job.set(
            checkpoint_proof=dict(request.proof),
            checkpoint_token=token,
            checkpoint_base=job.attempt_fact(token, "progress_base"),
            checkpoint_at=job.now,
        )
    if request.bytes_sent is not None:
        job.set_attempt(token, bytes_sent=request.bytes_sent)
    batch.insert(MEMBERS, members_ledger.rows(job.rows[token].id, request.members))
    return Accepted(job.view)


def _fenced(job: HeldJob, attempt: AttemptRecord) -> Refusal | None:
    """PersistCheckpoint's own guards, asked before anything is advanced: a zombie records nothing."""
    decision = protocol.persist_checkpoint(job.view, attempt.token, job.worker_of(attempt.token))
    if isinstance(decision, Refused) and decision.reason not in (
        Refusal.NOTHING_CHANGED,
        Refusal.NO_PROGRESS,
    ):
        return decision.reason
    return None


def advance(job: HeldJob, attempt: AttemptRecord, progress: int, worker: WorkerRecord) -> Decision[JobView]:
    """AdvanceAttempt to `progress` bytes of this attempt's own count. Not further on than before: nothing to
    do.
    """
    amount = job.attempt_fact(attempt.token, "progress_base") + progress
    limits = job.limits(attempt.token)
    return job.take(
        "AdvanceAttempt",
        protocol.advance_attempt(job.view, attempt.token, amount, worker, limits),
        token=attempt.token,
        worker=worker,
        amount=amount,
        max_progress=limits.max_progress,
    )


def record_stage_complete(
    requests: Sequence[StageCompleteRequest], *, actor: Actor | None = None
) -> list[Answer[JobView]]:
    """AdvanceAttempt to max_progress. Also part of `settle`, which takes the total; a repeat is accepted."""
    return _on_attempts([request.fence for request in requests], requests, _complete, actor)


def _complete(
    batch: Batch, job: HeldJob, attempt: AttemptRecord, request: StageCompleteRequest
) -> Answer[JobView]:
    return complete_stage(job, attempt, request.total)


def complete_stage(job: HeldJob, attempt: AttemptRecord, total: int) -> Answer[JobView]:
    """The manifest is sealed: the total is known now, and one unit more than the bytes is reached."""
    if attempt.stage_state is StageState.COMPLETE:
        return Accepted(job.view)
    before = dict(job.attempt_facts.get(attempt.token, {}))
    job.set_attempt(attempt.token, progress_max=job.attempt_fact(attempt.token, "progress_base") + total + 1)
    decision = advance(job, attempt, total + 1, job.worker_of(attempt.token))
    if decision.refused:
        job.attempt_facts[attempt.token] = before
    return decision


def invalidate_checkpoint(
    requests: Sequence[InvalidateRequest], *, actor: Actor | None = None
) -> list[Answer[JobView]]:
    """InvalidateCheckpoint. With a token also forgets the members that attempt recorded and counts from zero
    again.

    Accepted, with nothing to do, where the checkpoint is not valid already.
    """
    fences = [Fence(request.job_id, request.token or 0) for request in requests]

    def work(batch: Batch) -> list[Answer[JobView]]:
        return [_invalidate(batch, request) for request in requests]

    return store.act(store.distinct(fences), work, fences=fences, actor=actor)


def _invalidate(batch: Batch, request: InvalidateRequest) -> Answer[JobView]:
    job = batch.find(request.job_id)
    if isinstance(job, Declined):
        return job
    if request.token is not None:
        # A zombie must not undo its successor's checkpoint; an operator may.
        if not job.view.current_authority(request.token):
            return Refused(Refusal.NOT_CURRENT_AUTHORITY)
        _count_from_zero(batch, job, request.token)
    decision = job.take(
        "InvalidateCheckpoint", protocol.invalidate_checkpoint(job.view), token=request.token or 0
    )
    if decision.accepted:
        job.set(why=clean_text(f"checkpoint invalidated: {request.why}"))
    elif isinstance(decision, Refused) and decision.reason is Refusal.CHECKPOINT_NOT_VALID:
        return Accepted(job.view)
    return decision


def _count_from_zero(batch: Batch, job: HeldJob, token: int) -> None:
    job.set_attempt(token, progress_base=job.the_attempt(token).progress)
    batch.forget_members(job.rows[token].id)


def cooperative_stop(reports: Sequence[StopReport], *, actor: Actor | None = None) -> list[Answer[JobView]]:
    """CooperativeStop: record that the attempt's process has stopped, for a reason the module knows.

    A repeat is accepted.
    """
    return _on_attempts([report.fence for report in reports], reports, _stop, actor)


def _stop(batch: Batch, job: HeldJob, attempt: AttemptRecord, report: StopReport) -> Answer[JobView]:
    if attempt.state in (AttemptState.STOPPED, AttemptState.COMMITTED):
        if job.attempt_fact(attempt.token, "stop_confirmed_at") is None:
            job.set_attempt(attempt.token, stop_confirmed_at=job.now)
        return Accepted(job.view)
    leases = () if report.lease is None else (LeaseRecord(attempt.token, report.lease),)
    job.see(CoordinationRecord(leases=leases, cancel_notice=report.cancel_notice))
    return stop(job, attempt.token, report.why)


def stop(job: HeldJob, token: int, why: str) -> Decision[JobView]:
    """CooperativeStop on what is known in this transaction."""
    worker = job.worker_of(token)
    decision = job.take(
        "CooperativeStop", protocol.cooperative_stop(job.view, token, worker), token=token, worker=worker
    )
    if decision.accepted:
        end_attempt(job, token, None, why, confirmed=True)
    return decision


def end_attempt(job: HeldJob, token: int, end: AttemptEnd | None, why: str, *, confirmed: bool) -> None:
    """What people are told of an attempt's end. The first end that was recorded stays; later ones only
    confirm it.
    """
    facts: dict[str, object] = {}
    if job.attempt_fact(token, "ended_at") is None:
        facts["ended_at"] = job.now
    if end is not None and not job.attempt_fact(token, "outcome"):
        facts["outcome"] = end
    if why and not job.attempt_fact(token, "why"):
        facts["why"] = clean_text(why)
    if confirmed and job.attempt_fact(token, "stop_confirmed_at") is None:
        facts["stop_confirmed_at"] = job.now
    if facts:
        job.set_attempt(token, **facts)


def _on_attempts(
    fences: Sequence[Fence],
    requests: Sequence[Q],
    decide: Callable[[Batch, HeldJob, AttemptRecord, Q], Answer[JobView]],
    actor: Actor | None,
) -> list[Answer[JobView]]:
    """One request per fence, each decided on the held job and the attempt that its fence names."""

    def one(batch: Batch, fence: Fence, request: Q) -> Answer[JobView]:
        found = batch.find_attempt(fence)
        return found if isinstance(found, Declined) else decide(batch, *found, request)

    def work(batch: Batch) -> list[Answer[JobView]]:
        return [one(batch, fence, request) for fence, request in zip(fences, requests, strict=True)]

    return store.act(store.distinct(fences), work, fences=fences, actor=actor)
