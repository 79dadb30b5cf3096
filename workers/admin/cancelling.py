"""The one thing to do from the pages: ask that jobs be cancelled, with a reason, on the record twice.

The journal names the user as the actor of RequestCancel; Django's own log of the admin names the jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from django.contrib import messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.http import HttpRequest
from django.template.response import TemplateResponse

from jobs import transitions
from jobs.models import Job
from jobs.policy import clean_text
from jobs.transitions import CancelRequest
from jobs.values import Actor, ActorKind

REASON_CHARS_MAX: Final = 2000
JOBS_MAX: Final = 500
MAY_CANCEL: Final = "jobs.change_job"


def ask_for_reason(
    request: HttpRequest, jobs: Sequence[Job], context: dict[str, Any], *, back: str, error: str = ""
) -> TemplateResponse:
    """The page between wanting and doing."""
    return TemplateResponse(
        request,
        "admin/remora/cancel.html",
        {**context, "jobs": jobs, "back": back, "error": error, "reason_chars_max": REASON_CHARS_MAX},
    )


def reason_given(request: HttpRequest) -> str:
    """Bounded and harmless, whatever the browser let through: two logs have to hold it."""
    return clean_text(request.POST.get("reason", "").strip(), REASON_CHARS_MAX)


def request_cancels(request: HttpRequest, jobs: Sequence[Job], reason: str) -> None:
    """RequestCancel for each, and say to the user what came of it."""
    actor = Actor(ActorKind.USER, request.user.get_username())
    answers = transitions.request_cancel([CancelRequest(job.id, reason) for job in jobs], actor=actor)
    accepted = [job for job, answer in zip(jobs, answers, strict=True) if answer.accepted]
    _log(request, accepted, reason)
    if accepted:
        messages.success(request, f"Cancel requested for {_named(accepted)}.")
    refused = [job for job, answer in zip(jobs, answers, strict=True) if answer.refused]
    if refused:
        messages.warning(request, f"Too late to cancel {_named(refused)}: over, or being cancelled already.")


def _log(request: HttpRequest, jobs: Iterable[Job], reason: str) -> None:
    if request.user.pk is None:
        return
    message = f"RequestCancel: {reason}"
    LogEntry.objects.log_actions(request.user.pk, jobs, CHANGE, change_message=message)


def _named(jobs: Sequence[Job]) -> str:
    return str(jobs[0].id) if len(jobs) == 1 else f"{len(jobs)} jobs"
