"""Submission: idempotent durable acceptance. `dispatch_needed` is the outbox; the signal after commit is a
hint.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db import connection, transaction

from jobs import sql
from jobs.errors import SpecInvalid, SubmissionConflict
from jobs.ids import JobId, new_id
from jobs.journal import INIT, JOB_FIELDS
from jobs.models import Job
from jobs.protocol import JobRecord
from jobs.requests import Checked, JobRequest, Validate, checked, known_kinds, register_kind
from jobs.signals import job_accepted
from jobs.store import persistently
from jobs.values import SYSTEM, Actor
from jobs.write import append_events, journal_row

log = logging.getLogger(__name__)

__all__ = [
    "JobRequest",
    "Submitted",
    "Validate",
    "known_kinds",
    "register_kind",
    "submit",
    "submit_many",
]
_INITIAL: Final = {f"job.{name}": getattr(JobRecord(), name) for name in JOB_FIELDS}


@dataclass(frozen=True, slots=True)
class Submitted:
    """The accepted job. `created` is False when the key had named it before, with the same body."""

    job_id: JobId
    created: bool


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
    request = JobRequest(
        kind=kind,
        spec=spec,
        key=key,
        queue=queue,
        priority=priority,
        label=label,
        concurrency_key=concurrency_key,
        max_attempts=max_attempts,
        max_failures=max_failures,
        max_losses=max_losses,
        backoff_base_s=backoff_base_s,
        backoff_cap_s=backoff_cap_s,
    )
    return _accept([checked(request)], owner, actor)[0]


def submit_many(
    requests: Sequence[JobRequest], *, owner: Any = None, actor: Actor = SYSTEM
) -> list[Submitted]:
    """Accept all of these or none. Errors name the field with the request's place: "[3].spec.source"."""
    ready: list[Checked] = []
    for place, request in enumerate(requests):
        try:
            ready.append(checked(request))
        except SpecInvalid as error:
            raise type(error)(f"[{place}].{error.field}", error.message) from None
    return _accept(ready, owner, actor) if ready else []


def _accept(requests: Sequence[Checked], owner: Any, actor: Actor) -> list[Submitted]:
    """Insert what is new, find what is there; the same in a transaction of its own as in the caller's."""

    def once(_: int) -> list[Submitted]:
        # Only a savepoint when the caller has a transaction, so that an error here does not spoil it.
        with transaction.atomic():
            return _insert(requests, owner, actor, new_ids)

    new_ids = [new_id() for _ in requests]
    if connection.in_atomic_block:
        return once(1)
    return persistently(once)


def _insert(
    requests: Sequence[Checked], owner: Any, actor: Actor, new_ids: Sequence[JobId]
) -> list[Submitted]:
    owner_id = None if owner is None else owner.pk
    names = (*requests[0].columns, "id", "owner", "idempotency_key", "request_digest")
    rows = [
        (*request.columns.values(), job_id, owner_id, request.key, request.request_digest)
        for request, job_id in zip(requests, new_ids, strict=True)
    ]
    # Sorted by key, so that two submissions of the same keys wait for each other in one direction only.
    rows.sort(key=lambda row: (row[-2] or "", row[-4]))
    # An equal key that another transaction is about to commit is waited for here. An id that is there already
    # is this very submission's: an earlier try whose COMMIT was carried out.
    inserted = dict(sql.insert_returning(Job, names, rows, ("id", "created_at"), " ON CONFLICT DO NOTHING"))
    append_events(
        [
            (*journal_row(at, INIT, job_id, 0, actor, None), {}, {}, {}, _INITIAL)
            for job_id, at in inserted.items()
        ]
    )
    answers = _answers(requests, owner_id, new_ids, set(inserted))
    created = [answer.job_id for answer in answers if answer.created]
    if created:
        transaction.on_commit(lambda: announce(created))
    return answers


def _answers(
    requests: Sequence[Checked], owner_id: Any, new_ids: Sequence[JobId], inserted: set[JobId]
) -> list[Submitted]:
    """What each request's job is now: the one just inserted, or the one that its key names already."""
    if len(inserted) < len(new_ids):
        inserted = set(Job.objects.filter(id__in=new_ids).values_list("id", flat=True))
    missing = [r.key for r, job_id in zip(requests, new_ids, strict=True) if job_id not in inserted]
    named = _named(owner_id, missing) if missing else {}
    answers: list[Submitted] = []
    for request, job_id in zip(requests, new_ids, strict=True):
        if job_id in inserted:
            answers.append(Submitted(job_id, created=True))
            continue
        existing, body = named[request.key]
        if body != request.request_digest:
            raise SubmissionConflict(request.key or "", existing)
        answers.append(Submitted(existing, created=False))
    return answers


def _named(owner_id: Any, keys: Sequence[str | None]) -> dict[str | None, tuple[JobId, str]]:
    found = Job.objects.filter(owner_id=owner_id, idempotency_key__in=keys)
    rows = found.values_list("idempotency_key", "id", "request_digest")
    return {key: (job_id, body) for key, job_id, body in rows}


def announce(job_ids: Sequence[JobId]) -> None:
    """After commit: a hint that there are new jobs. A receiver that fails is logged, and spoils nothing."""
    for receiver, response in job_accepted.send_robust(sender=Job, job_ids=list(job_ids)):
        if isinstance(response, Exception):
            log.error("job_accepted receiver failed", extra={"receiver": repr(receiver)}, exc_info=response)
