"""Constraints and indexes of the tables that carry the protocol, under the names of the module's invariants.

What one row can say is said here; what needs a second row, or the row as it was, is in migrations/rules.sql.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from django.db import models
from django.db.models import F, Q

from jobs.protocol.states import TERMINAL_PHASES, AttemptState, OutcomeRequest, Phase, StageState
from jobs.values import AttemptEnd

_IN_AUTHORITY: Final = (Phase.RUNNING, Phase.CANCELLING)
_CANCEL_ASKED: Final = (Phase.CANCELLING, Phase.CANCELLED)
_TERMINAL: Final = tuple(phase for phase in Phase if phase in TERMINAL_PHASES)


def one_of(column: str, values: Iterable[str]) -> Q:
    return Q(**{f"{column}__in": [str(value) for value in values]})


JOB_RULES: Final = [
    models.UniqueConstraint(
        name="idempotency_key__once_per_owner",
        fields=["owner", "idempotency_key"],
        condition=Q(idempotency_key__isnull=False),
        nulls_distinct=False,
    ),
    models.CheckConstraint(
        name="idempotency_key__not_empty",
        condition=Q(idempotency_key__isnull=True) | ~Q(idempotency_key=""),
    ),
    models.CheckConstraint(name="state_consistency__phase", condition=one_of("phase", Phase)),
    models.CheckConstraint(
        name="state_consistency__authority",
        condition=(one_of("phase", _IN_AUTHORITY) & ~Q(authority=0))
        | (~one_of("phase", _IN_AUTHORITY) & Q(authority=0)),
    ),
    models.CheckConstraint(
        name="state_consistency__cancel",
        condition=(one_of("phase", _CANCEL_ASKED) & Q(cancel_requested=True))
        | (~one_of("phase", _CANCEL_ASKED) & Q(cancel_requested=False)),
    ),
    models.CheckConstraint(
        name="state_consistency__committed",
        condition=(Q(phase=Phase.SUCCEEDED) & ~Q(committed=0)) | (~Q(phase=Phase.SUCCEEDED) & Q(committed=0)),
    ),
    models.CheckConstraint(
        name="state_consistency__dispatch",
        condition=~Q(phase=Phase.QUEUED) | Q(dispatch_needed=True),
    ),
    models.CheckConstraint(
        name="authority_well_formed", condition=Q(authority=0) | Q(authority=F("current_token"))
    ),
    models.CheckConstraint(
        name="committed_result_consistent__token",
        condition=Q(committed=0) | Q(committed=F("current_token")),
    ),
    models.CheckConstraint(name="cancellation_safety", condition=Q(cancel_requested=False) | Q(committed=0)),
    models.CheckConstraint(
        name="type_ok__current_token",
        condition=Q(current_token__gte=0, current_token__lte=F("max_attempts")),
    ),
    models.CheckConstraint(
        name="type_ok__checkpoint",
        condition=Q(checkpoint__gte=0, checkpoint_base__gte=0, checkpoint_token__gte=0)
        & Q(checkpoint_token__lte=F("current_token")),
    ),
    models.CheckConstraint(
        name="type_ok__policy",
        condition=Q(max_attempts__gte=1, max_failures__gte=0, max_losses__gte=1)
        & Q(failures__gte=0, losses_in_row__gte=0, backoff_base_s__gte=0, backoff_cap_s__gte=0),
    ),
    models.CheckConstraint(
        name="finished_at__iff_terminal",
        condition=(one_of("phase", _TERMINAL) & Q(finished_at__isnull=False))
        | (~one_of("phase", _TERMINAL) & Q(finished_at__isnull=True)),
    ),
    models.CheckConstraint(
        name="retry_at__in_retry_wait",
        condition=~Q(phase=Phase.RETRY_WAIT) | Q(retry_at__isnull=False),
    ),
]

JOB_INDEXES: Final = [
    models.Index(
        F("priority").desc(),
        "id",
        name="job_awaiting_dispatch",
        condition=Q(phase=Phase.QUEUED, dispatch_needed=True),
    ),
    models.Index("id", name="job_running", condition=Q(phase=Phase.RUNNING)),
    models.Index("retry_at", "id", name="job_due_retries", condition=Q(phase=Phase.RETRY_WAIT)),
    models.Index("id", name="job_cancelling", condition=Q(phase=Phase.CANCELLING)),
    models.Index("finished_at", "id", name="job_finished", condition=Q(finished_at__isnull=False)),
    models.Index("phase", "id", name="job_by_phase"),
]

ATTEMPT_RULES: Final = [
    models.UniqueConstraint(name="attempt__token_once_per_job", fields=["job", "token"]),
    models.CheckConstraint(name="attempt__token_positive", condition=Q(token__gte=1)),
    models.CheckConstraint(name="attempt__state_known", condition=one_of("state", AttemptState)),
    models.CheckConstraint(name="attempt__stage_known", condition=one_of("stage_state", StageState)),
    models.CheckConstraint(
        name="attempt__pending_known", condition=one_of("pending_outcome", OutcomeRequest)
    ),
    models.CheckConstraint(name="attempt__outcome_known", condition=one_of("outcome", ["", *AttemptEnd])),
    models.CheckConstraint(
        name="resume_validity",
        condition=Q(progress__gte=F("initial_progress"))
        & (
            Q(initial_progress__gt=0, resumed_from_checkpoint=True)
            | Q(initial_progress=0, resumed_from_checkpoint=False)
        ),
    ),
    models.CheckConstraint(
        name="staging_ownership__committed_complete",
        condition=~Q(state=AttemptState.COMMITTED) | Q(stage_state=StageState.COMPLETE),
    ),
    models.CheckConstraint(
        name="stage_complete__total_known",
        condition=~Q(stage_state=StageState.COMPLETE) | Q(progress_max=F("progress")),
    ),
]

ATTEMPT_INDEXES: Final = [
    models.Index(
        "worker",
        name="attempt_active_by_worker",
        condition=one_of("state", (AttemptState.AUTHORIZED, AttemptState.EXECUTING)),
    ),
    models.Index(
        "job",
        name="attempt_active_by_job",
        condition=one_of("state", (AttemptState.AUTHORIZED, AttemptState.EXECUTING)),
    ),
    models.Index(
        "id",
        name="attempt_stage_to_clean",
        condition=one_of("stage_state", (StageState.PARTIAL, StageState.COMPLETE))
        & ~Q(state=AttemptState.COMMITTED),
    ),
    models.Index(
        "id",
        name="attempt_area_to_clean",
        condition=Q(stage_state=StageState.NONE, activated_at__isnull=False, stage_cleaned_at__isnull=True),
    ),
    models.Index("id", name="attempt_outcome_pending", condition=~Q(pending_outcome=OutcomeRequest.NONE)),
]
