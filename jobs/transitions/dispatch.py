"""Enqueue (its durable half), AuthorizeAttempt, and ActivateAttempt's second half."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from jobs import protocol, store
from jobs.held import HeldJob, JobRow
from jobs.ids import AttemptId, IncarnationId, JobId, new_id
from jobs.models import Attempt, Job
from jobs.protocol import Accepted, AttemptRecord, CoordinationRecord, Fence, JobView, Refused
from jobs.protocol.states import AttemptState
from jobs.store import Batch
from jobs.values import Actor, Answer, Declined, Observe, Unasked


@dataclass(frozen=True, slots=True)
class Offer:
    """What a worker is told of a job that wants dispatch. A hint: the expected token fences a stale one."""

    job_id: JobId
    expected_token: int
    kind: str
    queue: str
    priority: int
    concurrency_key: str
    spec_digest: str


Project: TypeAlias = Callable[[list[Offer]], list[bool]]
"""Runs the coordination script for these jobs and says, in order, whose marker it set."""


@dataclass(frozen=True, slots=True)
class AuthorizeRequest:
    """A worker holding the reservation asks for the next token of a job."""

    job_id: JobId
    expected_token: int
    worker: IncarnationId
    spec_digest: str


@dataclass(frozen=True, slots=True)
class ResumeFrom:
    """The valid checkpoint that an attempt starts from. Its members: queries.staged_members(attempt_id)."""

    progress: int
    proof: Mapping[str, Any]
    attempt_id: AttemptId
    token: int
    stage_location: str


@dataclass(frozen=True, slots=True)
class Grant:
    """An authorised attempt: everything its envelope is made of."""

    fence: Fence
    attempt_id: AttemptId
    worker: IncarnationId
    kind: str
    spec: Mapping[str, Any]
    spec_digest: str
    queue: str
    concurrency_key: str
    priority: int
    max_attempts: int
    stage_location: str
    initial_progress: int
    resume: ResumeFrom | None


Locate: TypeAlias = Callable[[str, Mapping[str, Any], Fence], str]
"""(kind, spec, fence) -> the stage of that attempt. Pure; called under the row lock."""


def enqueue(job_ids: Sequence[JobId], project: Project, *, skip_locked: bool = True) -> list[Offer]:
    """Enqueue: hold the rows, let `project` set the markers, and return the offers to send after commit.

    The script runs while the row locks are held: that a job is Queued is not stable by itself.
    """
    marked: dict[JobId, Offer] = {}

    def work(batch: Batch) -> None:
        wanted = [held for held in batch.jobs.values() if protocol.enqueue(held.view).accepted]
        offers = [offer_of(held.row) for held in wanted]
        # Kept over a repeat of the transaction: the script is not rolled back, and an offer for its marker is
        # due.
        marked.update(
            (offer.job_id, offer) for offer, set_now in zip(offers, project(offers), strict=True) if set_now
        )

    if job_ids:
        store.act(job_ids, work, skip_locked=skip_locked)
    return list(marked.values())


def offer_of(row: JobRow | Job) -> Offer:
    return Offer(
        job_id=row.id,
        expected_token=row.current_token + 1,
        kind=row.kind,
        queue=row.queue,
        priority=row.priority,
        concurrency_key=row.concurrency_key,
        spec_digest=row.spec_digest,
    )


def authorize_attempt(
    requests: Sequence[AuthorizeRequest], *, observe: Observe, locate: Locate, actor: Actor | None = None
) -> list[Answer[Grant]]:
    """AuthorizeAttempt: allocate the next token to an incarnation that is Up and holds the reservation.

    Declined when the token is not the expected one, the spec is not the offered one, or its kind is not
    served by that incarnation. `observe` must show the reservation by the incarnation's id.
    """
    # Made before the first try: if its COMMIT was carried out and the answer lost, the next try knows its own
    # attempt.
    attempt_ids = [new_id() for _ in requests]

    def work(batch: Batch) -> list[Answer[Grant]]:
        return [
            _authorize(batch, request, attempt_id, locate)
            for request, attempt_id in zip(requests, attempt_ids, strict=True)
        ]

    return store.act(
        [request.job_id for request in requests],
        work,
        fences=[Fence(request.job_id, request.expected_token) for request in requests],
        workers=[request.worker for request in requests],
        observe=observe,
        actor=actor,
        bodies=True,
    )


def _authorize(
    batch: Batch, request: AuthorizeRequest, attempt_id: AttemptId, locate: Locate
) -> Answer[Grant]:
    job, shared = batch.find(request.job_id), batch.workers.get(request.worker)
    if isinstance(job, Declined):
        return job
    if shared is None:
        return Declined(Unasked.NO_SUCH_WORKER)
    mine = job.rows.get(request.expected_token)
    if mine is not None and mine.id == attempt_id:
        return Accepted(_grant(job, request, mine.id, mine.stage_location))
    if (unfit := _unfit(job, request, shared[1])) is not None:
        return Declined(unfit)
    worker, token = shared[0], request.expected_token
    decision = protocol.authorize_attempt(job.view, worker, job.limits())
    if isinstance(decision, Refused):
        return decision
    location = locate(job.row.kind, job.row.spec, job.fence(token))
    # `observed` is what the reservation was: the step keeps it, and with it the worker that had it.
    job.take("AuthorizeAttempt", decision, token=token, worker=worker, max_attempts=job.fact("max_attempts"))
    resumed = decision.value.attempts[-1].resumed_from_checkpoint
    job.set_attempt(
        token,
        id=attempt_id,
        worker=request.worker,
        stage_location=location,
        kind=job.row.kind,
        spec_digest=job.row.spec_digest,
        authorized_at=job.now,
        progress_base=job.row.checkpoint_base if resumed else 0,
        resumed_from=job.row.checkpoint_token if resumed else 0,
    )
    job.set(why="", retry_at=None)
    return Accepted(_grant(job, request, attempt_id, location))


def _unfit(job: HeldJob, request: AuthorizeRequest, kinds: Sequence[str]) -> Unasked | None:
    if request.expected_token != job.job.current_token + 1:
        return Unasked.UNEXPECTED_TOKEN
    if request.spec_digest != job.row.spec_digest:
        return Unasked.SPEC_DIGEST_DIFFERS
    if job.row.kind not in kinds:
        return Unasked.KIND_NOT_SERVED
    return None


def _grant(job: HeldJob, request: AuthorizeRequest, attempt_id: AttemptId, location: str) -> Grant:
    row, token = job.row, request.expected_token
    attempt = job.the_attempt(token)
    return Grant(
        fence=job.fence(token),
        attempt_id=attempt_id,
        worker=request.worker,
        kind=row.kind,
        spec=row.spec,
        spec_digest=row.spec_digest,
        queue=row.queue,
        concurrency_key=row.concurrency_key,
        priority=row.priority,
        max_attempts=job.fact("max_attempts"),
        stage_location=location,
        initial_progress=attempt.initial_progress,
        resume=_resume(job, attempt) if attempt.resumed_from_checkpoint else None,
    )


def _resume(job: HeldJob, attempt: AttemptRecord) -> ResumeFrom:
    """The checkpoint's proof, and the attempt whose stage and ledger it names."""
    earlier = Attempt.objects.only("id", "stage_location").get(
        job_id=job.row.id, token=job.row.checkpoint_token
    )
    return ResumeFrom(
        progress=attempt.initial_progress - job.row.checkpoint_base,
        proof=job.row.checkpoint_proof or {},
        attempt_id=earlier.id,
        token=job.row.checkpoint_token,
        stage_location=earlier.stage_location,
    )


def record_activated(fences: Sequence[Fence], *, actor: Actor | None = None) -> list[Answer[JobView]]:
    """ActivateAttempt, second half: the script has turned the reservation into a live lease; record
    "executing".

    Checks the authority again under the row lock. Repeating it for an attempt that executes already is
    accepted.
    """
    return store.act(
        store.distinct(fences),
        lambda batch: [_activate(batch, fence) for fence in fences],
        fences=fences,
        actor=actor,
    )


def _activate(batch: Batch, fence: Fence) -> Answer[JobView]:
    found = batch.find_attempt(fence)
    if isinstance(found, Declined):
        return found
    job, attempt = found
    if attempt.state is AttemptState.EXECUTING and job.view.current_authority(fence.token):
        return Accepted(job.view)
    # The script consumed the reservation to make the lease, so that is what this half of the action saw.
    job.see(CoordinationRecord(reservation=attempt.worker))
    worker = job.worker_of(fence.token)
    decision = protocol.activate_attempt(job.view, fence.token, worker)
    if decision.accepted:
        job.set_attempt(fence.token, activated_at=job.now)
    return job.take("ActivateAttempt", decision, token=fence.token, worker=worker)
