"""Enqueue (its durable half), AuthorizeAttempt, and ActivateAttempt's second half."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from jobs.ids import AttemptId, IncarnationId, JobId
from jobs.protocol import Fence, JobView
from jobs.values import Actor, Answer, Observe


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


def enqueue(
    job_ids: Sequence[JobId], project: Project, *, skip_locked: bool = True
) -> list[Offer]:
    """Enqueue: hold the rows, let `project` set the markers, and return the offers to send after commit.

    The script runs while the row locks are held: that a job is Queued is not stable by itself.
    """
    raise NotImplementedError


def authorize_attempt(
    requests: Sequence[AuthorizeRequest], *, observe: Observe, locate: Locate, actor: Actor | None = None
) -> list[Answer[Grant]]:
    """AuthorizeAttempt: allocate the next token to an incarnation that is Up and holds the reservation.

    Declined when the token is not the expected one, the spec is not the offered one, or its kind is not served by that
    incarnation. `observe` must show the reservation by the incarnation's id.
    """
    raise NotImplementedError


def record_activated(fences: Sequence[Fence], *, actor: Actor | None = None) -> list[Answer[JobView]]:
    """ActivateAttempt, second half: the script has turned the reservation into a live lease; record "executing".

    Checks the authority again under the row lock. Repeating it for an attempt that executes already is accepted.
    """
    raise NotImplementedError
