"""Reads rows under their locks and turns them into protocol values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Final

from django.db import connection

from jobs.held import AttemptRow, HeldJob, JobRow
from jobs.ids import IncarnationId, JobId
from jobs.models import Attempt, Job, WorkerIncarnation
from jobs.protocol import AttemptRecord, Fence, JobRecord, JobView, WorkerRecord
from jobs.protocol.states import AttemptState, OutcomeRequest, Phase, StageState, WorkerState

BODIES: Final = ("spec", "checkpoint_proof")
_JOB_NAMES: Final = tuple(field.name for field in fields(JobRow) if field.name not in BODIES)
_ATTEMPT_NAMES: Final = tuple(field.name for field in fields(AttemptRow) if field.name != "worker")
_ATTEMPT_COLUMNS: Final = ", ".join(f"attempt.{name}" for name in _ATTEMPT_NAMES)
# The clock is read once the locks are held, so that a wait for one does not age what is decided.
_LOAD_ATTEMPTS: Final = f"""
    SELECT clock_timestamp(), worker.state, {_ATTEMPT_COLUMNS}
    FROM (VALUES (1)) AS always
    LEFT JOIN {Attempt._meta.db_table} AS attempt ON attempt.job_id = ANY(%s) AND (
        attempt.state IN ('{AttemptState.AUTHORIZED}', '{AttemptState.EXECUTING}')
        OR (attempt.job_id, attempt.token) IN (SELECT * FROM unnest(%s::uuid[], %s::int[])))
    LEFT JOIN {WorkerIncarnation._meta.db_table} AS worker ON worker.id = attempt.worker_id
    ORDER BY attempt.job_id, attempt.token
"""  # noqa: S608


def lock_jobs(job_ids: Iterable[JobId], *, skip_locked: bool, bodies: bool) -> list[JobRow]:
    """Lock these jobs in id order, so that two batches never wait for each other in a circle."""
    names = _JOB_NAMES + BODIES if bodies else _JOB_NAMES
    locked = (
        Job.objects.filter(id__in=sorted(set(job_ids)))
        .order_by("id")
        .select_for_update(skip_locked=skip_locked, no_key=True)
        .values_list(*names)
    )
    return [JobRow(*row) for row in locked]


def share_workers(workers: Iterable[IncarnationId]) -> dict[IncarnationId, tuple[WorkerRecord, list[str]]]:
    """Lock incarnations FOR SHARE: they cannot be declared Down before this transaction ends. With the kinds
    served.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT id, state, kinds FROM {WorkerIncarnation._meta.db_table} "  # noqa: S608
            "WHERE id = ANY(%s) ORDER BY id FOR SHARE",
            [sorted(set(workers))],
        )
        return {
            id_: (WorkerRecord(str(id_), WorkerState(state)), kinds)
            for id_, state, kinds in cursor.fetchall()
        }


def load_attempts(
    job_ids: Sequence[JobId], fences: Iterable[Fence]
) -> tuple[datetime, dict[JobId, list[AttemptRow]]]:
    """PostgreSQL's clock, and of these jobs the attempts that may still run plus those that are named."""
    named = sorted({(fence.job_id, fence.token) for fence in fences}, key=str)
    found: dict[JobId, list[AttemptRow]] = defaultdict(list)
    with connection.cursor() as cursor:
        cursor.execute(
            _LOAD_ATTEMPTS, [list(job_ids), [job_id for job_id, _ in named], [token for _, token in named]]
        )
        rows = cursor.fetchall()
    for _, worker_state, *columns in rows:
        if worker_state is not None:
            worker = WorkerRecord(str(columns[3]), WorkerState(worker_state))
            found[columns[1]].append(AttemptRow(*(*columns, worker)))
    return rows[0][0], found


def hold(row: JobRow, attempts: Sequence[AttemptRow], now: datetime) -> HeldJob:
    """The locked rows of one job as a value."""
    view = JobView(job_record(row), tuple(attempt_record(attempt) for attempt in attempts))
    return HeldJob(row, view, view, {attempt.token: attempt for attempt in attempts}, now)


def job_record(row: JobRow | Job) -> JobRecord:
    return JobRecord(
        phase=Phase(row.phase),
        cancel_requested=row.cancel_requested,
        current_token=row.current_token,
        authority=row.authority,
        dispatch_needed=row.dispatch_needed,
        committed=row.committed,
        checkpoint=row.checkpoint,
        checkpoint_valid=row.checkpoint_valid,
    )


def attempt_record(row: AttemptRow | Attempt) -> AttemptRecord:
    return AttemptRecord(
        token=row.token,
        worker=str(row.worker_id),
        state=AttemptState(row.state),
        progress=row.progress,
        initial_progress=row.initial_progress,
        resumed_from_checkpoint=row.resumed_from_checkpoint,
        stage_state=StageState(row.stage_state),
        pending_outcome=OutcomeRequest(row.pending_outcome),
    )
