"""The list of worker incarnations and the page of one."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from jobs import pages
from jobs.models import WorkerIncarnation
from jobs.protocol.states import WorkerState
from workers import display
from workers.admin.base import ReadOnlyAdmin
from workers.files.names import show_name


class StateFilter(admin.SimpleListFilter):
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(WorkerState.UP, "up"), (WorkerState.DOWN, "down")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        return queryset.filter(state=value.replace("\x00", "")) if value else queryset


class WorkerList(ChangeList):
    """One page of incarnations, each with the number of its attempts that are not known to have stopped."""

    def get_results(self, request: HttpRequest) -> None:
        super().get_results(request)
        workers = list(self.result_list)
        counts = pages.active_counts([worker.id for worker in workers])
        now = pages.now()
        for worker in workers:
            worker.active = counts[worker.id]
            worker.age_s = ((worker.declared_down_at or now) - worker.started_at).total_seconds()
        self.result_list = workers


@admin.register(WorkerIncarnation)
class WorkerIncarnationAdmin(ReadOnlyAdmin):
    list_display = ("name", "shown_state", "role", "takes_from", "concurrency", "attempts", "lived", "reason")
    list_display_links = ("name",)
    list_filter = (StateFilter,)
    ordering = ("-id",)
    actions = ()

    class Media:
        css = {"all": ("remora/remora.css",)}

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return WorkerList

    @admin.display(description="worker")
    def name(self, worker: WorkerIncarnation) -> str:
        return f"{show_name(worker.host)}:{worker.pid}"

    @admin.display(description="state")
    def shown_state(self, worker: WorkerIncarnation) -> SafeString:
        down = "" if worker.state == WorkerState.UP else " remora-tag-down"
        return format_html(
            '<span class="remora-tag{}">{}</span>', down, worker.state.removeprefix("Worker").lower()
        )

    @admin.display(description="queues")
    def takes_from(self, worker: WorkerIncarnation) -> str:
        return show_name(", ".join(worker.queues))

    @admin.display(description="attempts")
    def attempts(self, worker: Any) -> int:
        return int(worker.active)

    @admin.display(description="age")
    def lived(self, worker: Any) -> str:
        return display.duration(worker.age_s)

    @admin.display(description="why down")
    def reason(self, worker: WorkerIncarnation) -> str:
        return show_name(worker.why)

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        worker = self.get_object(request, unquote(object_id))
        if worker is None:
            raise Http404("there is no such incarnation")
        if request.method != "GET" or not self.has_view_permission(request, worker):
            raise PermissionDenied
        listed = reverse("admin:jobs_workerincarnation_changelist")
        name = self.name(worker)
        context = self.admin_site.each_context(request) | {
            "opts": self.opts,
            "title": name,
            "crumbs": [(listed, "Worker incarnations"), ("", name)],
            "worker": worker,
            "up": worker.state == WorkerState.UP,
            "attempts": pages.attempts_of_worker(worker.id),
        }
        return TemplateResponse(request, "admin/remora/worker.html", context)
