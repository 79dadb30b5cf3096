"""Submission: idempotent durable acceptance. `dispatch_needed` is the outbox; the signal after commit is a hint."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from jobs.ids import JobId
from jobs.values import SYSTEM, Actor

Validate: TypeAlias = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""The spec in its normal form, or SpecInvalid naming the field."""


@dataclass(frozen=True, slots=True)
class JobRequest:
    """One job that is asked for. What is None takes the deployment's setting."""

    kind: str
    spec: Mapping[str, Any]
    key: str | None = None
    queue: str = "default"
    priority: int = 0
    label: str = ""
    concurrency_key: str = ""
    max_attempts: int | None = None
    max_failures: int | None = None
    max_losses: int | None = None
    backoff_base_s: float | None = None
    backoff_cap_s: float | None = None


@dataclass(frozen=True, slots=True)
class Submitted:
    """The accepted job. `created` is False when the key had named it before, with the same body."""

    job_id: JobId
    created: bool


def register_kind(kind: str, validate: Validate) -> None:
    """Make a kind known. The handlers' registry calls it for each; this app knows no handler."""
    raise NotImplementedError


def known_kinds() -> list[str]:
    """The kinds that may be submitted, sorted."""
    raise NotImplementedError


def submit(
    kind: str,
    spec: Mapping[str, Any],
    *,
    key: str | None = None,
    queue: str = "default",
    priority: int = 0,
    label: str = "",
    concurrency_key: str = "",
    max_attempts: int | None = None,
    max_failures: int | None = None,
    max_losses: int | None = None,
    backoff_base_s: float | None = None,
    backoff_cap_s: float | None = None,
    owner: Any = None,
    actor: Actor = SYSTEM,
) -> Submitted:
    """Accept one job, or say why not: SpecInvalid / SubmissionInvalid (`.field`), SubmissionConflict.

    One transaction, or part of the caller's. The same key and body again give the same job.
    """
    raise NotImplementedError


def submit_many(
    requests: Sequence[JobRequest], *, owner: Any = None, actor: Actor = SYSTEM
) -> list[Submitted]:
    """Accept all of these or none. Errors name the field with the request's place: "[3].spec.source"."""
    raise NotImplementedError
