"""Submission: idempotent durable acceptance. `dispatch_needed` is the outbox; the signal after commit is a hint."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from django.conf import settings
from django.db import connection, transaction

from jobs import sql, strict_json
from jobs.errors import SpecInvalid, SubmissionConflict, SubmissionInvalid
from jobs.ids import JobId, new_id
from jobs.journal import INIT, JOB_FIELDS
from jobs.models import KEY_CHARS_MAX, PRIORITY_RANGE, WORD_CHARS_MAX, Job, ProtocolEvent
from jobs.protocol import JobRecord
from jobs.signals import job_accepted
from jobs.store import persistently
from jobs.values import SYSTEM, Actor
from jobs.write import append_events, journal_row

log = logging.getLogger(__name__)

ATTEMPTS_MAX: Final = 100_000
BACKOFF_S_MAX: Final = 86_400.0
_WORD: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{WORD_CHARS_MAX - 1}}}")
_INITIAL: Final = {f"job.{name}": getattr(JobRecord(), name) for name in JOB_FIELDS}

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


_validators: dict[str, Validate] = {}


def register_kind(kind: str, validate: Validate) -> None:
    """Make a kind known. The handlers' registry calls it for each; this app knows no handler."""
    _validators[kind] = validate


def known_kinds() -> list[str]:
    """The kinds that may be submitted, sorted."""
    return sorted(_validators)


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


@dataclass(frozen=True, slots=True)
class Checked:
    """A request that may be accepted: every field in range, the spec in its normal form."""

    key: str | None
    request_digest: str
    columns: Mapping[str, Any]


def checked(request: JobRequest) -> Checked:
    """The request in its normal form, or SpecInvalid / SubmissionInvalid naming the field."""
    columns = _checked_fields(request)
    key = None if request.key is None else _text(request.key, "key", KEY_CHARS_MAX, empty=False)
    spec = strict_json.check(_normal_spec(request), "spec", settings.REMORA_SPEC_BYTES_MAX)
    body = {**columns, "spec": spec}
    return Checked(
        key, strict_json.digest(body), {**body, "spec_digest": strict_json.digest(spec), **_policy(request)}
    )


def _normal_spec(request: JobRequest) -> Mapping[str, Any]:
    validate = _validators.get(request.kind)
    if validate is None:
        known = ", ".join(known_kinds()) or "none"
        raise SubmissionInvalid("kind", f"{request.kind!a} is not known; known kinds: {known}")
    if not isinstance(request.spec, Mapping):
        raise SpecInvalid("spec", f"must be an object, not {type(request.spec).__name__}")
    # Before the handler's own rules: they may then rely on plain JSON of a bounded size.
    spec = strict_json.check(request.spec, "spec", settings.REMORA_SPEC_BYTES_MAX)
    try:
        return validate(spec)
    except SpecInvalid as error:
        field = error.field if error.field.startswith("spec") else f"spec.{error.field}"
        raise SpecInvalid(field, error.message) from None


def _checked_fields(request: JobRequest) -> dict[str, Any]:
    _word(request.kind, "kind")
    _whole(request.priority, "priority", *PRIORITY_RANGE)
    return {
        "kind": request.kind,
        "queue": _word(request.queue, "queue"),
        "priority": request.priority,
        "label": _text(request.label, "label", KEY_CHARS_MAX),
        "concurrency_key": _text(request.concurrency_key, "concurrency_key", KEY_CHARS_MAX),
    }


def _policy(request: JobRequest) -> dict[str, Any]:
    """Retry policy, the deployment's where the request says nothing. Not part of the body: a default may change."""

    def given(value: Any, default: Any) -> Any:
        return default if value is None else value

    base_s = given(request.backoff_base_s, settings.REMORA_BACKOFF_BASE_S)
    # Only a cap that was asked for can contradict the base; the deployment's own gives way to it.
    cap_s = given(request.backoff_cap_s, max(settings.REMORA_BACKOFF_CAP_S, base_s))
    max_attempts = given(request.max_attempts, settings.REMORA_MAX_ATTEMPTS)
    max_failures = given(request.max_failures, settings.REMORA_MAX_FAILURES)
    max_losses = given(request.max_losses, settings.REMORA_MAX_LOSSES)
    return {
        "max_attempts": _whole(max_attempts, "max_attempts", 1, ATTEMPTS_MAX),
        "max_failures": _whole(max_failures, "max_failures", 0, ATTEMPTS_MAX),
        "max_losses": _whole(max_losses, "max_losses", 1, ATTEMPTS_MAX),
        "backoff_base_s": _seconds(base_s, "backoff_base_s", BACKOFF_S_MAX),
        "backoff_cap_s": _seconds(cap_s, "backoff_cap_s", BACKOFF_S_MAX, least=float(base_s)),
    }


def _word(value: Any, field: str) -> str:
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        raise SubmissionInvalid(
            field, f"must be 1 to {WORD_CHARS_MAX} of a-z A-Z 0-9 . _ -, starting with a letter or digit"
        )
    return value


def _text(value: Any, field: str, chars_max: int, *, empty: bool = True) -> str:
    try:
        return strict_json.check_text(value, field, chars_max=chars_max, empty=empty)
    except SpecInvalid as error:
        raise SubmissionInvalid(error.field, error.message) from None


def _whole(value: Any, field: str, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise SubmissionInvalid(field, f"must be a whole number from {least} to {most}, not {value!a}")
    return value


def _seconds(value: Any, field: str, most: float, *, least: float = 0.0) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise SubmissionInvalid(
            field, f"must be a number of seconds from {least:g} to {most:g}, not {value!a}"
        )
    return float(value)


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
    # An equal key that another transaction is about to commit is waited for here. No id twice, either: this may be the
    # repeat of a try whose COMMIT was carried out.
    sql.insert_rows(Job, names, rows, " ON CONFLICT DO NOTHING")
    answers = _found(requests, owner_id, new_ids)
    created = [answer.job_id for answer in answers if answer.created]
    _journal(created, actor)
    if created:
        transaction.on_commit(lambda: announce(created))
    return answers


def _found(requests: Sequence[Checked], owner_id: Any, new_ids: Sequence[JobId]) -> list[Submitted]:
    """What each request's job is now: the one just inserted, or the one that its key names already."""
    inserted = set(Job.objects.filter(id__in=new_ids).values_list("id", flat=True))
    missing = [r.key for r, job_id in zip(requests, new_ids, strict=True) if job_id not in inserted]
    named = {
        key: (job_id, body)
        for key, job_id, body in Job.objects.filter(
            owner_id=owner_id, idempotency_key__in=missing
        ).values_list("idempotency_key", "id", "request_digest")
    }
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


def _journal(job_ids: Sequence[JobId], actor: Actor) -> None:
    """The module's initial state, as the first step of each job's history."""
    known = set(
        ProtocolEvent.objects.filter(job_id__in=job_ids, action=INIT).values_list("job_id", flat=True)
    )
    created = Job.objects.filter(id__in=[job_id for job_id in job_ids if job_id not in known]).values_list(
        "id", "created_at"
    )
    append_events(
        [(*journal_row(at, INIT, job_id, 0, actor, None), {}, {}, {}, _INITIAL) for job_id, at in created]
    )


def announce(job_ids: Sequence[JobId]) -> None:
    """After commit: a hint that there are new jobs. What a receiver does wrong is logged, and spoils nothing."""
    for receiver, response in job_accepted.send_robust(sender=Job, job_ids=list(job_ids)):
        if isinstance(response, Exception):
            log.error("job_accepted receiver failed", extra={"receiver": repr(receiver)}, exc_info=response)
