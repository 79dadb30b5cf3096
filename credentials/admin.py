"""Operators' pages: connections are made, rotated and retired here; intents, versions and events are looked
at.

Material is typed in and never shown. The three deeds have views of their own, since Django's admin runs its
forms inside a transaction, and what Vault is told cannot be taken back by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables

from credentials import config
from credentials.errors import CredentialError
from credentials.forms import NewConnectionForm, RetirementForm, RotationForm
from credentials.models import (
    Connection,
    CredentialEvent,
    CredentialIntent,
    CredentialVersion,
    VersionPin,
)
from credentials.service import CredentialService
from credentials.store import Actor

if TYPE_CHECKING:
    _Pages = admin.ModelAdmin[Any]
    _Rows = admin.TabularInline[Any, Any]
else:  # these take no parameters at run time
    _Pages = admin.ModelAdmin
    _Rows = admin.TabularInline

_guarded = [never_cache, sensitive_post_parameters(), sensitive_variables()]


class LookingOnly(_Pages):
    """Pages to look at: the ledger is written by the actions alone."""

    show_full_result_count = False
    list_per_page = 50

    def has_add_permission(self, request: HttpRequest, *_: Any) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, *_: Any) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, *_: Any) -> bool:
        return False


class PinInline(_Rows):
    model = VersionPin
    extra = 0
    max_num = 100
    can_delete = False

    def has_add_permission(self, *_: Any) -> bool:
        return False

    def has_change_permission(self, *_: Any) -> bool:
        return False


@admin.register(CredentialIntent)
class IntentAdmin(LookingOnly):
    list_display = ("owner", "name", "state", "tries", "touched_at", "created_at", "why")
    list_filter = ("state",)
    search_fields = ("=owner", "=id")
    ordering = ("-touched_at",)


@admin.register(CredentialVersion)
class VersionAdmin(LookingOnly):
    list_display = ("owner", "name", "number", "state", "created_at", "superseded_at", "destroyed_at")
    list_filter = ("state",)
    search_fields = ("=owner", "=name")
    ordering = ("-created_at",)
    inlines = (PinInline,)


@admin.register(CredentialEvent)
class EventAdmin(LookingOnly):
    list_display = ("seq", "at", "action", "owner", "name", "actor_kind", "actor_id")
    list_filter = ("action",)
    search_fields = ("=owner", "=intent_id")
    ordering = ("-seq",)


@admin.register(Connection)
class ConnectionAdmin(LookingOnly):
    list_display = ("name", "kind", "current_number", "rotated_at", "retired_at", "created_at")
    list_filter = ("kind",)
    search_fields = ("name",)
    ordering = ("name",)

    def has_add_permission(self, request: HttpRequest, *_: Any) -> bool:
        """The button on the list; it leads to `create`."""
        return request.user.has_perm("credentials.add_connection")

    def get_urls(self) -> list[URLPattern]:
        deeds = [
            path("add/", self.admin_site.admin_view(self.create), name="credentials_connection_add"),
            path("<uuid:pk>/rotate/", self.admin_site.admin_view(self.rotate), name="connection_rotate"),
            path("<uuid:pk>/retire/", self.admin_site.admin_view(self.retire), name="connection_retire"),
        ]
        return deeds + super().get_urls()

    @method_decorator(_guarded)
    def create(self, request: HttpRequest) -> HttpResponse:
        _require(request, "credentials.add_connection")
        form = NewConnectionForm(request.POST or None)
        if form.is_valid():
            given = form.cleaned_data
            try:
                _service(request).create_connection(
                    given["name"], given["kind"], given["settings"] or {}, given["material"]
                )
            except CredentialError as error:
                form.add_error(None, str(error))
            else:
                made = Connection.objects.get(name=given["name"])
                self.log_addition(request, made, "Created with its first version.")
                return self._back(request, made, f"Connection {made} was created.")
        return self._page(request, form, "Add connection", "Save")

    @method_decorator(_guarded)
    def rotate(self, request: HttpRequest, pk: Any) -> HttpResponse:
        _require(request, "credentials.change_connection")
        found = get_object_or_404(Connection, pk=pk)
        # What the person saw as current is what must be current still: two people do not overwrite each
        # other.
        form = RotationForm(request.POST or None, initial={"expected_number": found.current_number})
        if form.is_valid():
            given = form.cleaned_data
            try:
                version = _service(request).rotate_connection(
                    found.name, given["material"], given["expected_number"]
                )
            except CredentialError as error:
                form.add_error(None, str(error))
            else:
                self.log_change(request, found, f"Rotated to version {version.number}.")
                return self._back(request, found, f"Version {version.number} of {found} is current.")
        return self._page(request, form, f"Rotate {found}", "Rotate", found)

    @method_decorator(_guarded)
    def retire(self, request: HttpRequest, pk: Any) -> HttpResponse:
        _require(request, "credentials.delete_connection")
        found = get_object_or_404(Connection, pk=pk)
        form = RetirementForm(request.POST or None)
        if request.method == "POST":
            try:
                _service(request).retire_connection(found.name)
            except CredentialError as error:
                messages.error(request, str(error))
            else:
                self.log_change(request, found, "Retired.")
                return self._back(
                    request, found, f"{found} is retired; its secret goes with its last holder."
                )
        return self._page(request, form, f"Retire {found} for good?", "Retire", found)

    def _page(
        self,
        request: HttpRequest,
        form: forms.Form,
        title: str,
        submit: str,
        found: Connection | None = None,
    ) -> HttpResponse:
        context = self.admin_site.each_context(request) | {
            "form": form,
            "title": title,
            "submit": submit,
            "opts": self.opts,
            "original": found,
            "trouble": _service(request).trouble(),
        }
        return TemplateResponse(request, "admin/credentials/connection/deed.html", context)

    def _back(self, request: HttpRequest, found: Connection, message: str) -> HttpResponse:
        messages.success(request, message)
        return HttpResponseRedirect(reverse("admin:credentials_connection_change", args=[found.pk]))


def _require(request: HttpRequest, permission: str) -> None:
    if not request.user.has_perm(permission):
        raise PermissionDenied


def _service(request: HttpRequest) -> CredentialService:
    return config.credential_service(Actor("user", str(request.user.pk)))
