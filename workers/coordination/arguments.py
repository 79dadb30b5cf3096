"""Requests as the scripts' arguments. What cannot be written down is refused before anything is sent."""

from __future__ import annotations

from workers.coordination.errors import CoordinationMisuse
from workers.coordination.facts import Garbage
from workers.coordination.requests import (
    TEXT_BYTES_MAX,
    TOKEN_MAX,
    ActivateRequest,
    CleanRequest,
    ClearProgressRequest,
    EnqueueRequest,
    Id,
    NoticeRequest,
    PermitLimits,
    RegrantRequest,
    ReleaseLeaseRequest,
    ReleaseReservationRequest,
    RenewRequest,
    ReportRequest,
    ReserveRequest,
)
from workers.coordination.runner import Element

PROGRESS_MAX = 2**63 - 1
PHASE_BYTES_MAX = 200


def text(name: str, value: Id, empty: bool = False) -> str:
    """An id or a name: not empty, without NUL, valid text of bounded size."""
    spelled = str(value)
    if "\0" in spelled:
        raise CoordinationMisuse(f"{name} holds NUL.")
    if not spelled and not empty:
        raise CoordinationMisuse(f"{name} is empty.")
    try:
        size_bytes = len(spelled.encode(errors="surrogateescape"))  # foreign bytes go back as they came
    except UnicodeEncodeError:
        raise CoordinationMisuse(f"{name} is not valid text.") from None
    if size_bytes > TEXT_BYTES_MAX:
        raise CoordinationMisuse(f"{name} has {size_bytes} bytes: at most {TEXT_BYTES_MAX}.")
    return spelled


def number(name: str, value: int, least: int = 0, most: int = TOKEN_MAX) -> int:
    """A whole number in bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise CoordinationMisuse(f"{name}={value!r} is not a whole number from {least} to {most}.")
    return value


def phase(value: str) -> str:
    """What an attempt says that it does, for people: cut to a bound, and cleaned rather than refused."""
    kept = value.replace("\0", "").encode(errors="replace")[:PHASE_BYTES_MAX]
    return kept.decode(errors="ignore")


def enqueue(request: EnqueueRequest) -> Element:
    return {
        "job": text("job_id", request.job_id),
        "expected_token": number("expected_token", request.expected_token, 1),
        "queue": text("queue", request.queue),
        "priority": number("priority", request.priority, -TOKEN_MAX),
    }


def reserve(request: ReserveRequest) -> Element:
    element: Element = {
        "job": text("job_id", request.job_id),
        "expected_token": number("expected_token", request.expected_token, 1),
        "incarnation": text("incarnation", request.incarnation),
        "claim": text("claim", request.claim),
        "queue": text("queue", request.queue),
        "key": text("concurrency_key", request.concurrency_key, empty=True),
        "local_limit": number("local_limit", request.limits.local_limit, -1, PROGRESS_MAX),
        "executing": number("executing_here", request.executing_here),
    }
    return element | _limits(request.limits)


def activate(request: ActivateRequest) -> Element:
    return {
        "job": text("job_id", request.job_id),
        "token": number("token", request.token, 1),
        "attempt": text("attempt_id", request.attempt_id),
        "incarnation": text("incarnation", request.incarnation),
        "claim": text("claim", request.claim),
        "progress": number("progress", request.progress, 0, PROGRESS_MAX),
    }


def renew(request: RenewRequest) -> Element:
    return {
        "job": text("job_id", request.job_id),
        "token": number("token", request.token, 1),
        "attempt": text("attempt_id", request.attempt_id),
        "grant_epoch": text("grant_epoch", request.grant_epoch),
    }


def regrant(request: RegrantRequest) -> Element:
    element: Element = {
        "job": text("job_id", request.job_id),
        "token": number("token", request.token, 1),
        "attempt": text("attempt_id", request.attempt_id),
        "incarnation": text("incarnation", request.incarnation),
        "grant_epoch": text("grant_epoch", request.grant_epoch),
        "queue": text("queue", request.queue),
        "key": text("concurrency_key", request.concurrency_key, empty=True),
    }
    return element | _limits(request.limits)


def release_reservation(request: ReleaseReservationRequest) -> Element:
    return {
        "job": text("job_id", request.job_id),
        "expected_token": number("expected_token", request.expected_token),
        "incarnation": text("incarnation", request.incarnation),
        "claim": text("claim", request.claim, empty=True),
    }


def release_lease(request: ReleaseLeaseRequest) -> Element:
    return {
        "job": text("job_id", request.job_id),
        "token": number("token", request.token),
        "attempt": text("attempt_id", request.attempt_id, empty=True),
    }


def report(request: ReportRequest) -> Element:
    known = request.total is not None
    return {
        "job": text("job_id", request.job_id),
        "token": number("token", request.token, 1),
        "attempt": text("attempt_id", request.attempt_id),
        "progress": number("progress", request.progress, 0, PROGRESS_MAX),
        "total": number("total", request.total or 0, 0, PROGRESS_MAX) if known else "",
        "phase": phase(request.phase),
    }


def notice(request: NoticeRequest) -> Element:
    return {"job": text("job_id", request.job_id), "token": number("token", request.token)}


def clear_progress(request: ClearProgressRequest) -> Element:
    return {
        "job": text("job_id", request.job_id),
        "current_token": number("current_token", request.current_token),
        "authority": number("authority", request.authority),
    }


def clean(request: CleanRequest) -> Element:
    return {
        "job": text("job_id", request.job_id),
        "current_token": number("current_token", request.current_token),
    }


def garbage(found: Garbage) -> Element:
    """As Redis has it: a foreign field may hold anything."""
    return {"kind": found.kind, "field": found.field}


def job(job_id: Id) -> Element:
    return {"job": text("job_id", job_id)}


def incarnation(one: Id) -> Element:
    return {"incarnation": text("incarnation", one)}


def _limits(limits: PermitLimits) -> Element:
    return {
        "global_limit": number("global_limit", limits.global_limit, -1, PROGRESS_MAX),
        "queue_limit": number("queue_limit", limits.queue_limit, -1, PROGRESS_MAX),
        "key_limit": number("key_limit", limits.key_limit, -1, PROGRESS_MAX),
    }
