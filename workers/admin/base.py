"""What the pages share: nothing can be added, changed or deleted, and no table is ever counted as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.contrib import admin
from django.core.paginator import Paginator
from django.db.models import Model
from django.http import HttpRequest
from django.utils.functional import cached_property

if TYPE_CHECKING:
    _Paginator = Paginator[Any]
    _ModelAdmin = admin.ModelAdmin[Any]
else:
    _Paginator = Paginator
    _ModelAdmin = admin.ModelAdmin

ROWS_COUNTED_MAX: Final = 5_000


class BoundedPaginator(_Paginator):
    """Counts up to a bound: whoever wants older rows than that narrows the list."""

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        return int(rows.order_by()[:ROWS_COUNTED_MAX].count())


class ReadOnlyAdmin(_ModelAdmin):
    """To look at. Whoever may view may look; nobody may edit."""

    list_per_page = 50
    list_max_show_all = 0
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    paginator = BoundedPaginator
    sortable_by = ()

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """`change` includes looking, as everywhere in Django's admin, though here it changes no field."""
        names = (f"{self.opts.app_label}.{verb}_{self.opts.model_name}" for verb in ("view", "change"))
        return any(request.user.has_perm(name) for name in names)
