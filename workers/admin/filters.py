"""Filters of the list of jobs. Their choices are known without looking through the table of jobs."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.admin import SimpleListFilter
from django.db.models import QuerySet
from django.http import HttpRequest

from jobs import pages
from jobs.protocol.states import Phase
from workers import handlers

CELERY_PREFIX = "jobs."


class ColumnFilter(SimpleListFilter):
    """Narrows to rows whose column has exactly the chosen value, also one that is not on offer."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self.value()
        return queryset.filter(**{str(self.parameter_name): value.replace("\x00", "")}) if value else queryset


class PhaseFilter(ColumnFilter):
    title = "phase"
    parameter_name = "phase"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(str(phase), str(phase)) for phase in Phase]


class KindFilter(ColumnFilter):
    title = "kind"
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(kind, kind) for kind in handlers.kinds()]


class QueueFilter(ColumnFilter):
    title = "queue"
    parameter_name = "queue"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        served = {name.removeprefix(CELERY_PREFIX) for name in pages.queues_served() if name != "control"}
        known = sorted({"default", *settings.REMORA_QUEUE_LIMITS, *served})
        return [(queue, queue) for queue in known]
