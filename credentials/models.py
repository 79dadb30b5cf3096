"""The ledger: every intent, every path that was ever handed to a writer, every version. Never any material.

Only credentials.store writes. The rules that keep a row right whoever writes it are the constraints here
and the triggers in migrations/rules.sql; both bear the names of the invariants that they hold.

An owner or a holder is a word of the caller's ("job:<id>", "connection:<id>", "attempt:<id>"); nothing here
knows what it means.
"""

from __future__ import annotations

from typing import Any, Final

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from credentials.ids import new_id
from credentials.protocol import OPEN_STATES, IntentState

REFERENCE_CHARS_MAX: Final = 200
NAME_CHARS_MAX: Final = 100
PATH_CHARS: Final = 32

_PATHLESS: Final = [IntentState.PREPARED, IntentState.ABANDONED]


def _one_of(column: str, values: Any) -> Q:
    return Q(**{f"{column}__in": sorted(str(value) for value in values)})


class ConnectionKind(models.TextChoices):
    """What a connection leads to, and so which fields its material has."""

    S3 = "s3", "S3"
    HTTP = "http", "HTTP"
    SFTP = "sftp", "SFTP"
    GENERIC = "generic", "Generic"


class VersionState(models.TextChoices):
    """A version's secret: usable; being destroyed; destroyed. Only forward."""

    LIVE = "Live"
    DESTROYING = "Destroying"
    DESTROYED = "Destroyed"


class CredentialIntent(models.Model):
    """The durable owner of one write to Vault. CredentialIntentUnused is the absence of a row."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    owner = models.CharField(max_length=REFERENCE_CHARS_MAX)
    name = models.CharField(max_length=NAME_CHARS_MAX)
    field_names = ArrayField(models.CharField(max_length=NAME_CHARS_MAX), default=list)
    state = models.CharField(max_length=32, db_default=IntentState.PREPARED)
    version_durable = models.BooleanField(db_default=False)
    path = models.CharField(max_length=PATH_CHARS, blank=True, db_default="")
    tries = models.PositiveIntegerField(db_default=0)
    # For a version of a connection: the number that must be current when it is committed.
    expected_number = models.PositiveIntegerField(null=True)
    created_at = models.DateTimeField(db_default=Now())
    touched_at = models.DateTimeField(db_default=Now())
    why = models.TextField(blank=True, db_default="")

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="credential_state__known",
                condition=_one_of("state", set(IntentState) - {IntentState.UNUSED}),
            ),
            models.CheckConstraint(
                name="credential_lifecycle_well_formed__version",
                condition=Q(version_durable=True, state=IntentState.COMMITTED)
                | (Q(version_durable=False) & ~Q(state=IntentState.COMMITTED)),
            ),
            models.CheckConstraint(
                name="credential_lifecycle_well_formed__path",
                condition=_one_of("state", _PATHLESS) | ~Q(path=""),
            ),
        ]
        indexes = [
            models.Index("touched_at", name="intent_open", condition=_one_of("state", OPEN_STATES)),
            models.Index("owner", name="intent_owner"),
        ]

    def __str__(self) -> str:
        return f"{self.owner} {self.name} ({self.state})"


class SecretPath(models.Model):
    """One try's path. The row outlives whatever is at the path, and goes only when the path is forgotten."""

    path = models.CharField(primary_key=True, max_length=PATH_CHARS)
    intent = models.ForeignKey(CredentialIntent, on_delete=models.PROTECT, related_name="paths")
    number = models.PositiveIntegerField()
    # Of the only token that could ever write here. Tells nothing and opens nothing.
    writer_accessor = models.CharField(max_length=100)
    opened_at = models.DateTimeField(db_default=Now())
    # Nothing is there and nothing can come: fenced, or destroyed.
    closed_at = models.DateTimeField(null=True)
    # When Vault was first found not to know that token any more.
    writer_dead_at = models.DateTimeField(null=True)
    forgotten_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint("intent", "number", name="one_path_per_try"),
            models.CheckConstraint(
                name="a_path_is_forgotten_after_it_is_closed_and_its_writer_dead",
                condition=Q(forgotten_at__isnull=True)
                | Q(closed_at__isnull=False, writer_dead_at__isnull=False),
            ),
        ]
        indexes = [
            models.Index(
                "closed_at",
                name="path_to_forget",
                condition=Q(closed_at__isnull=False, forgotten_at__isnull=True),
            ),
        ]

    def __str__(self) -> str:
        return self.path


class Connection(models.Model):
    """A named way to a source or target: what is no secret here, its material in versions."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    name = models.CharField(max_length=NAME_CHARS_MAX, unique=True)
    kind = models.CharField(max_length=16, choices=ConnectionKind)
    settings = models.JSONField(default=dict, blank=True)
    # 0 while nothing was committed yet.
    current_number = models.PositiveIntegerField(db_default=0)
    created_at = models.DateTimeField(db_default=Now())
    rotated_at = models.DateTimeField(null=True)
    retired_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="connection_kind__known", condition=_one_of("kind", ConnectionKind.values)
            )
        ]

    def __str__(self) -> str:
        return self.name


class CredentialVersion(models.Model):
    """What a committed intent left: the durable owner of the secret at its path, until that is destroyed."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    intent = models.OneToOneField(CredentialIntent, on_delete=models.PROTECT, related_name="version")
    owner = models.CharField(max_length=REFERENCE_CHARS_MAX)
    name = models.CharField(max_length=NAME_CHARS_MAX)
    number = models.PositiveIntegerField()
    path = models.CharField(max_length=PATH_CHARS, unique=True)
    field_names = ArrayField(models.CharField(max_length=NAME_CHARS_MAX), default=list)
    state = models.CharField(max_length=16, choices=VersionState, db_default=VersionState.LIVE)
    created_at = models.DateTimeField(db_default=Now())
    superseded_at = models.DateTimeField(null=True)
    destroyed_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint("owner", "name", "number", name="version_numbers_are_used_once"),
            models.CheckConstraint(name="version_number__positive", condition=Q(number__gte=1)),
            models.CheckConstraint(
                name="version_state__known", condition=_one_of("state", VersionState.values)
            ),
            models.CheckConstraint(
                name="version_state__destroyed_dated",
                condition=Q(state=VersionState.DESTROYED, destroyed_at__isnull=False)
                | (~Q(state=VersionState.DESTROYED) & Q(destroyed_at__isnull=True)),
            ),
            models.CheckConstraint(
                name="a_superseded_version_alone_is_destroyed",
                condition=Q(state=VersionState.LIVE) | Q(superseded_at__isnull=False),
            ),
        ]
        indexes = [
            models.Index(
                "superseded_at",
                name="version_to_destroy",
                condition=Q(superseded_at__isnull=False) & ~Q(state=VersionState.DESTROYED),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.owner} {self.name} #{self.number}"


class VersionPin(models.Model):
    """A holder relies on a version: it is not destroyed before the pin is gone."""

    version = models.ForeignKey(CredentialVersion, on_delete=models.PROTECT, related_name="pins")
    holder = models.CharField(max_length=REFERENCE_CHARS_MAX)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint("holder", "version", name="one_pin_per_holder_and_version")]

    def __str__(self) -> str:
        return f"{self.holder} -> {self.version_id}"


class ReadGrant(models.Model):
    """One read token that is, or is about to be, in a holder's hands. The row goes when the token is
    revoked.
    """

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    holder = models.CharField(max_length=REFERENCE_CHARS_MAX)
    path = models.CharField(max_length=PATH_CHARS)
    # Empty until Vault has answered. A grant that was revoked before that is never handed over.
    accessor = models.CharField(max_length=100, blank=True, db_default="")
    created_at = models.DateTimeField(db_default=Now())
    checked_at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes = [
            models.Index("holder", name="grant_holder"),
            models.Index("checked_at", name="grant_to_check"),
        ]

    def __str__(self) -> str:
        return f"{self.holder} reads {self.path}"


class CredentialEvent(models.Model):
    """The journal: one row per accepted action, in the order of commits of each intent. Never changed."""

    seq = models.BigAutoField(primary_key=True)
    at = models.DateTimeField(db_default=Now())
    action = models.CharField(max_length=NAME_CHARS_MAX)
    intent_id = models.UUIDField(null=True)
    owner = models.CharField(max_length=REFERENCE_CHARS_MAX)
    name = models.CharField(max_length=NAME_CHARS_MAX, blank=True)
    actor_kind = models.CharField(max_length=32)
    actor_id = models.CharField(max_length=REFERENCE_CHARS_MAX, blank=True)
    params = models.JSONField(default=dict)
    observed = models.JSONField(default=dict)
    before = models.JSONField(default=dict)
    after = models.JSONField(default=dict)

    class Meta:
        indexes = [
            models.Index("intent_id", "seq", name="credential_event_intent"),
            models.Index("owner", "seq", name="credential_event_owner"),
        ]

    def __str__(self) -> str:
        return f"{self.seq} {self.action}"
