"""The durable store's rows. PostgreSQL is the sole authority; every other store is rebuilt from these or
expires.

A protocol column is the module's variable in snake_case and holds the module's spelling of the value. The ORM
only reads: jobs.store and jobs.submission write, and the rules that keep a row right whoever writes it (the
constraints here, the triggers in migrations/rules.sql) bear the names of the module's invariants.
"""

from __future__ import annotations

from typing import Any, Final, NoReturn

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from jobs import rules
from jobs.errors import ProtocolBypassed
from jobs.ids import new_id
from jobs.protocol.states import (
    AttemptState,
    OutcomeRequest,
    Phase,
    StageState,
    WorkerState,
)

WORD_CHARS_MAX: Final = 100
KEY_CHARS_MAX: Final = 255
PRIORITY_RANGE: Final = (-1000, 1000)


class ReadOnlyQuerySet(models.QuerySet[Any]):
    """Reads. Whoever wants to write goes through jobs.transitions or jobs.submission."""

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise ProtocolBypassed(self.model.__name__)

    create = update = delete = bulk_create = bulk_update = get_or_create = update_or_create = _refuse


class DurableRow(models.Model):
    """A row that only the durable store writes."""

    objects = ReadOnlyQuerySet.as_manager()

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise ProtocolBypassed(type(self).__name__)

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise ProtocolBypassed(type(self).__name__)


class WorkerIncarnation(DurableRow):
    """One start of one worker process. Its id is used once; Down is for good."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    host = models.CharField(max_length=255)
    pid = models.BigIntegerField()
    role = models.CharField(max_length=WORD_CHARS_MAX)
    queues = ArrayField(models.CharField(max_length=WORD_CHARS_MAX))
    kinds = ArrayField(models.CharField(max_length=WORD_CHARS_MAX))
    concurrency = models.PositiveIntegerField()
    state = models.CharField(max_length=16, db_default=WorkerState.UP)
    started_at = models.DateTimeField(db_default=Now())
    declared_down_at = models.DateTimeField(null=True)
    why = models.TextField(blank=True, db_default="")

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="worker_state__known",
                condition=rules.one_of("state", (WorkerState.UP, WorkerState.DOWN)),
            ),
            models.CheckConstraint(
                name="worker_state__down_dated",
                condition=Q(state=WorkerState.DOWN, declared_down_at__isnull=False)
                | Q(state=WorkerState.UP, declared_down_at__isnull=True),
            ),
        ]
        indexes = [
            models.Index("started_at", name="incarnation_up", condition=Q(state=WorkerState.UP)),
        ]

    def __str__(self) -> str:
        return f"{self.host}:{self.pid} ({self.id})"


class Job(DurableRow):
    """One accepted job: what is asked for, its protocol variables, and the policy of its retries."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    kind = models.CharField(max_length=WORD_CHARS_MAX)
    queue = models.CharField(max_length=WORD_CHARS_MAX, db_default="default")
    priority = models.SmallIntegerField(db_default=0)
    spec = models.JSONField()
    spec_digest = models.CharField(max_length=64)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    idempotency_key = models.CharField(max_length=KEY_CHARS_MAX, null=True, blank=True)
    request_digest = models.CharField(max_length=64)
    label = models.CharField(max_length=KEY_CHARS_MAX, blank=True, db_default="")
    concurrency_key = models.CharField(max_length=KEY_CHARS_MAX, blank=True, db_default="")

    # The module's variables. authority and committed are tokens, 0 is NoAttempt.
    phase = models.CharField(max_length=16, db_default=Phase.QUEUED)
    cancel_requested = models.BooleanField(db_default=False)
    current_token = models.IntegerField(db_default=0)
    authority = models.IntegerField(db_default=0)
    dispatch_needed = models.BooleanField(db_default=True)
    committed = models.IntegerField(db_default=0)
    checkpoint = models.BigIntegerField(db_default=0)
    checkpoint_valid = models.BooleanField(db_default=False)

    # What "checkpoint_valid" hides: the proof, whose stage the checkpoint names, and from where its units
    # count.
    checkpoint_proof = models.JSONField(null=True)
    checkpoint_token = models.IntegerField(db_default=0)
    checkpoint_base = models.BigIntegerField(db_default=0)
    checkpoint_at = models.DateTimeField(null=True)

    # Policy: when to act, never whether it is allowed.
    max_attempts = models.IntegerField()
    max_failures = models.IntegerField()
    max_losses = models.IntegerField()
    failures = models.IntegerField(db_default=0)
    losses_in_row = models.IntegerField(db_default=0)
    backoff_base_s = models.FloatField()
    backoff_cap_s = models.FloatField()
    retry_at = models.DateTimeField(null=True)
    cancel_reason = models.TextField(blank=True, db_default="")
    why = models.TextField(blank=True, db_default="")

    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())
    finished_at = models.DateTimeField(null=True)

    class Meta:
        constraints = rules.JOB_RULES
        indexes = rules.JOB_INDEXES

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


class Attempt(DurableRow):
    """One allocated token of a job, and what is known of the process that holds it."""

    id = models.UUIDField(primary_key=True, default=new_id, editable=False)
    job = models.ForeignKey(Job, on_delete=models.PROTECT, related_name="attempts")
    token = models.IntegerField()
    worker = models.ForeignKey(WorkerIncarnation, on_delete=models.PROTECT, related_name="attempts")

    # The module's variables.
    state = models.CharField(max_length=20, db_default=AttemptState.AUTHORIZED)
    progress = models.BigIntegerField(db_default=0)
    initial_progress = models.BigIntegerField(db_default=0)
    resumed_from_checkpoint = models.BooleanField(db_default=False)
    stage_state = models.CharField(max_length=16, db_default=StageState.NONE)
    pending_outcome = models.CharField(max_length=24, db_default=OutcomeRequest.NONE)

    # Facts about it. progress_max is the total in protocol units, known once the manifest is sealed.
    progress_max = models.BigIntegerField(null=True)
    progress_base = models.BigIntegerField(db_default=0)
    resumed_from = models.IntegerField(db_default=0)
    stage_location = models.TextField()
    kind = models.CharField(max_length=WORD_CHARS_MAX)
    spec_digest = models.CharField(max_length=64)
    bytes_sent = models.BigIntegerField(db_default=0)
    outcome = models.CharField(max_length=24, blank=True, db_default="")
    why = models.TextField(blank=True, db_default="")
    authorized_at = models.DateTimeField(db_default=Now())
    activated_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    stop_confirmed_at = models.DateTimeField(null=True)
    stage_cleaned_at = models.DateTimeField(null=True)

    class Meta:
        constraints = rules.ATTEMPT_RULES
        indexes = rules.ATTEMPT_INDEXES

    def __str__(self) -> str:
        return f"{self.job_id}#{self.token}"


class StagedMember(DurableRow):
    """A sealed member of an attempt's stage: recorded before anything relies on it, never changed."""

    attempt = models.ForeignKey(Attempt, on_delete=models.PROTECT, related_name="members")
    path = models.BinaryField()
    kind = models.CharField(max_length=8)
    size = models.BigIntegerField()
    sha256 = models.CharField(max_length=64, blank=True)
    mode = models.IntegerField()
    mtime_ns = models.BigIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(name="staged_member__path_once", fields=["attempt", "path"]),
            models.CheckConstraint(
                name="staged_member__kind_known", condition=Q(kind__in=["file", "dir", "symlink"])
            ),
        ]

    def __str__(self) -> str:
        return f"{self.attempt_id}:{bytes(self.path)!r}"


class CommittedResult(DurableRow):
    """The result of a job: the manifest that AcceptSuccess published. At most one, for ever."""

    job = models.OneToOneField(Job, on_delete=models.PROTECT, primary_key=True, related_name="result")
    attempt = models.OneToOneField(Attempt, on_delete=models.PROTECT, related_name="+")
    token = models.IntegerField()
    manifest_digest = models.CharField(max_length=64)
    manifest_size = models.BigIntegerField()
    members = models.BigIntegerField()
    bytes = models.BigIntegerField()
    location = models.TextField()
    committed_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="committed_result__counts",
                condition=Q(manifest_size__gte=0, members__gte=0, bytes__gte=0, token__gte=1),
            )
        ]

    def __str__(self) -> str:
        return f"result of {self.job_id}#{self.token}"


class ProtocolEvent(DurableRow):
    """The journal: one row per durable step, written in the transaction that took it. Append only.

    `before` and `after` hold the variables that changed, as "job.<field>" and "attempt.<token>.<field>".
    `job_id` is no foreign key, so that appending never waits for a row.
    """

    seq = models.BigAutoField(primary_key=True)
    at = models.DateTimeField(db_default=Now())
    action = models.CharField(max_length=48)
    job_id = models.UUIDField(null=True)
    token = models.IntegerField(db_default=0)
    actor_kind = models.CharField(max_length=16)
    actor_id = models.CharField(max_length=255, blank=True)
    incarnation = models.UUIDField(null=True)
    params = models.JSONField(db_default={})
    observed = models.JSONField(db_default={})
    before = models.JSONField(db_default={})
    after = models.JSONField(db_default={})

    class Meta:
        indexes = [models.Index("job_id", "seq", name="journal_by_job")]

    def __str__(self) -> str:
        return f"{self.seq} {self.action} {self.job_id}#{self.token}"
