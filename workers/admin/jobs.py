"""The list of jobs and the page of one job."""

from __future__ import annotations

import hashlib
import json
from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, JsonResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from jobs import pages
from jobs.errors import NoSuchJob
from jobs.models import Job, ProtocolEvent
from jobs.protocol.states import TERMINAL_PHASES
from workers import display, reports
from workers.admin import cancelling
from workers.admin.base import ReadOnlyAdmin
from workers.admin.filters import KindFilter, PhaseFilter, QueueFilter
from workers.files.names import show_name

NOT_CANCELLABLE = TERMINAL_PHASES | {"Cancelling"}


class JobList(ChangeList):
    """One page of jobs, each with its report: Redis is asked once for the page."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        jobs = list(self.result_list)
        for job, report in zip(jobs, reports.summaries(jobs), strict=True):
            job.report = report
        self.result_list = jobs


@admin.register(Job)
class JobAdmin(ReadOnlyAdmin):
    list_display = ("name", "shown_phase", "kind", "queue", "token", "age", "progress", "waits")
    list_display_links = ("name",)
    list_filter = (PhaseFilter, KindFilter, QueueFilter)
    search_fields = ("id",)  # what is searched is in get_search_results
    search_help_text = "An id or its beginning, an idempotency key, or the beginning of a label."
    ordering = ("-id",)
    actions = ("cancel_selected",)

    class Media:
        css = {"all": ("remora/remora.css",)}

    # --- the list -------------------------------------------------------------------------------------------

    def get_queryset(self, request: HttpRequest) -> QuerySet[Job]:
        return super().get_queryset(request).defer("spec", "checkpoint_proof")

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return JobList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Job], search_term: str
    ) -> tuple[QuerySet[Job], bool]:
        return (pages.matching(queryset, search_term) if search_term.strip() else queryset), False

    @admin.display(description="job")
    def name(self, job: Job) -> SafeString:
        return format_html("<code>{}</code> {}", str(job.id), show_name(job.label))

    @admin.display(description="phase")
    def shown_phase(self, job: Job) -> SafeString:
        return render_to_string("admin/remora/phase.html", {"name": job.phase, "style": job.phase.lower()})

    @admin.display(description="token")
    def token(self, job: Job) -> int:
        return job.current_token

    @admin.display(description="age")
    def age(self, job: Any) -> str:
        return display.duration(job.report["age_s"])

    @admin.display(description="live progress")
    def progress(self, job: Any) -> str | SafeString:
        live = job.report["live"]
        if live is None:
            return ""
        share = display.percent(live["progress"], live["total"])
        bar = format_html(
            '<span class="remora-bar remora-bar-small"><span class="remora-fill" style="width: {}%; '
            'display: block"></span></span>',
            share or 0,
        )
        return format_html("{}{}", bar, display.progress(live))

    @admin.display(description="why it waits")
    def waits(self, job: Any) -> str:
        waiting = job.report["waiting"]
        return show_name(waiting["text"]) if waiting else ""

    # --- one job --------------------------------------------------------------------------------------------

    def get_urls(self) -> list[URLPattern]:
        guard = self.admin_site.admin_view
        own = [
            path("<uuid:job_id>/live/", guard(self.live_view), name="jobs_job_live"),
            path("<uuid:job_id>/cancel/", guard(self.cancel_view), name="jobs_job_cancel"),
        ]
        return own + super().get_urls()

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        job = self.get_object(request, unquote(object_id))
        if job is None:
            raise Http404("there is no such job")
        if request.method != "GET" or not self.has_view_permission(request, job):
            raise PermissionDenied
        report = reports.describe(job.id)
        before = request.GET.get("before", "")
        events = pages.journal(job.id, before=int(before) if before.isdecimal() else None)
        more = len(events) == pages.JOURNAL_ROWS
        context = self._context(request, job, "") | hints_shown(report)
        context |= {
            "report": report,
            "over": report["phase"] in TERMINAL_PHASES,
            "journal": [event_shown(event) for event in events],
            "older": events[-1].seq if more else None,
            "paged": bool(before),
            "may_cancel": self.has_cancel_permission(request) and report["phase"] not in NOT_CANCELLABLE,
            "cancel_address": reverse("admin:jobs_job_cancel", args=[job.id]),
            "live_address": reverse("admin:jobs_job_live", args=[job.id]),
        }
        return TemplateResponse(request, "admin/remora/job.html", context)

    def live_view(self, request: HttpRequest, job_id: UUID) -> JsonResponse:
        """What the page asks for every few seconds."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        try:
            report = reports.describe(job_id)
        except NoSuchJob:
            raise Http404("there is no such job") from None
        return JsonResponse({"phase": report["phase"], "live": report["live"], **hints_shown(report)})

    def _context(self, request: HttpRequest, job: Job | None, here: str) -> dict[str, Any]:
        crumbs = [(reverse("admin:jobs_job_changelist"), "Jobs")]
        if job is not None:
            address = reverse("admin:jobs_job_change", args=[job.id]) if here else ""
            crumbs.append((address, str(job.id)))
        crumbs += [("", here)] if here else []
        title = str(job.id) if job else here
        return self.admin_site.each_context(request) | {
            "opts": self.opts,
            "title": title,
            "crumbs": crumbs,
        }

    # --- cancelling -----------------------------------------------------------------------------------------

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm(cancelling.MAY_CANCEL)

    def cancel_view(self, request: HttpRequest, job_id: UUID) -> HttpResponse:
        job = self.get_object(request, str(job_id))
        if job is None:
            raise Http404("there is no such job")
        if not self.has_cancel_permission(request):
            raise PermissionDenied
        back = reverse("admin:jobs_job_change", args=[job_id])
        reason = cancelling.reason_given(request)
        if request.method == "POST" and reason:
            cancelling.request_cancels(request, [job], reason)
            return HttpResponseRedirect(back)
        error = "Say why." if request.method == "POST" else ""
        context = self._context(request, job, "Cancel")
        return cancelling.ask_for_reason(request, [job], context, back=back, error=error)

    @admin.action(description="Cancel the selected jobs…", permissions=["cancel"])
    def cancel_selected(self, request: HttpRequest, queryset: QuerySet[Job]) -> HttpResponse | None:
        jobs = list(queryset[: cancelling.JOBS_MAX + 1])
        if len(jobs) > cancelling.JOBS_MAX:
            self.message_user(
                request, f"Select at most {cancelling.JOBS_MAX} jobs at a time.", messages.ERROR
            )
            return None
        reason = cancelling.reason_given(request)
        if reason:
            cancelling.request_cancels(request, jobs, reason)
            return None
        hidden = [("action", "cancel_selected"), ("asked", "yes")]
        hidden += [(ACTION_CHECKBOX_NAME, str(job.id)) for job in jobs]
        context = self._context(request, None, "Cancel") | {"hidden": hidden}
        error = "Say why." if "asked" in request.POST else ""
        return cancelling.ask_for_reason(request, jobs, context, back=request.get_full_path(), error=error)


def hints_shown(report: reports.Report) -> dict[str, Any]:
    """What moves on the page, as text, and a version of the rest: when that differs, all is loaded anew."""
    live = report["live"]
    return {
        "version": _version(report),
        "percent": display.percent(live["progress"], live["total"]) if live else None,
        "progress_text": display.progress(live),
        "age_text": display.duration(live["age_s"]) if live else "",
    }


def _version(report: reports.Report) -> str:
    names = ("token", "state", "lease", "outcome", "stage", "zombie", "progress")
    moving = [{name: attempt[name] for name in names} for attempt in report["attempts"]]
    waiting = report["waiting"]["text"] if report["waiting"] else ""
    facts = [report["phase"], report["token"], report["checkpoint"], report["retry_at"], waiting, moving]
    facts += [report["live"] is None, report["coordination_reachable"]]
    return hashlib.sha256(json.dumps(facts, default=str).encode()).hexdigest()[:16]


def event_shown(event: ProtocolEvent) -> dict[str, Any]:
    """One row of the journal; what changed as (name, was, now)."""
    changes = [
        {"name": name, "was": event.before.get(name), "now": value}
        for name, value in sorted(event.after.items())
    ]
    names = ("seq", "action", "token", "actor_kind", "actor_id")
    at = f"{event.at:%Y-%m-%d %H:%M:%S}.{event.at.microsecond // 1000:03d}"
    return {name: getattr(event, name) for name in names} | {"at": at, "changes": changes}
