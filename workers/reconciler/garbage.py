"""collect_garbage: what Redis still holds of jobs that need none of it, found by going through Redis itself.

So it also finds what nobody was told of: leftovers of a lost worker, of a Redis that came back with old
data, of rows that are gone. Redis is read first and PostgreSQL after it, and each deletion compares with
what was read.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

from jobs import queries
from jobs.ids import IncarnationId, JobId, as_uuid
from jobs.protocol.states import AttemptState, Phase, WorkerState
from jobs.queries import JobFact
from workers.coordination import coordination
from workers.coordination.facts import CoordinationFacts
from workers.coordination.requests import (
    TOKEN_MAX,
    CleanRequest,
    ClearProgressRequest,
    ReleaseLeaseRequest,
    ReleaseReservationRequest,
)
from workers.reconciler.swept import Run, duty

BUDGET_S: Final = 5.0
_TERMINAL: Final = (Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED)


class Place:
    """Where the last run of this process stopped for lack of time, so that a large store is gone through in
    turns.
    """

    cursor: str | None = None


@duty("collect_garbage")
def collect_garbage(run: Run, *, rows_max: int) -> None:
    """ReleaseLease, ReleaseReservation, ClearStaleLiveProgress, CleanTerminalCoordination; and fields
    nobody can read.
    """
    deadline = time.monotonic() + BUDGET_S
    cursor = Place.cursor
    while time.monotonic() < deadline:
        page = coordination().scan_jobs(cursor, rows_hint=rows_max)
        if page.garbage:
            run.count("unreadable", len(page.garbage))
            if not run.dry_run:
                coordination().discard_garbage(page.garbage)
        _compare(run, sorted({job_id for text in page.job_ids if (job_id := _parse(text)) is not None}))
        cursor = page.cursor
        if not run.dry_run:
            Place.cursor = cursor
        if cursor is None:
            return


def _parse(text: str) -> UUID | None:
    try:
        return as_uuid(text)
    except ValueError:
        return None


def _compare(run: Run, job_ids: Sequence[JobId]) -> None:
    if not job_ids:
        return
    seen = coordination().snapshot([str(job_id) for job_id in job_ids]).facts
    known = queries.job_facts(job_ids)
    run.count("seen", len(job_ids))
    workers = _worker_states([seen[str(job_id)] for job_id in job_ids])
    leases, reservations, stale, over = [], [], [], []
    for job_id in job_ids:
        facts, job = seen[str(job_id)], known.get(job_id)
        if facts.lease is not None and _lease_is_left_over(facts, job):
            leases.append(ReleaseLeaseRequest(str(job_id), facts.lease.token, facts.lease.attempt_id))
        if job is None or job.phase in _TERMINAL:
            over.append(CleanRequest(str(job_id), TOKEN_MAX if job is None else job.current_token))
            continue
        if facts.reservation is not None and _reservation_is_left_over(facts, job, workers):
            held = facts.reservation
            reservations.append(
                ReleaseReservationRequest(str(job_id), held.expected_token, held.incarnation, held.claim)
            )
        if facts.progress is not None:
            stale.append(ClearProgressRequest(str(job_id), job.current_token, job.authority))
    _remove(run, leases, reservations, stale, over)


def _remove(
    run: Run,
    leases: Sequence[ReleaseLeaseRequest],
    reservations: Sequence[ReleaseReservationRequest],
    stale: Sequence[ClearProgressRequest],
    over: Sequence[CleanRequest],
) -> None:
    if run.dry_run:
        run.count("would_release", len(leases) + len(reservations))
        run.count("would_clean", len(over))
        return
    store = coordination()
    for name, replies in (
        ("lease", store.release_lease(leases) if leases else []),
        ("reservation", store.release_reservation(reservations) if reservations else []),
        ("progress", store.clear_stale_live_progress(stale) if stale else []),
        ("terminal", store.clean_terminal_coordination(over) if over else []),
    ):
        for reply in replies:
            run.count(f"{name}_{reply.value}")


def _lease_is_left_over(facts: CoordinationFacts, job: JobFact | None) -> bool:
    """Not of the authority, or of an attempt that has stopped. A lease newer than what was read is left
    alone.
    """
    if job is None or facts.lease is None:
        return True
    if facts.lease.token > job.current_token:
        return False
    if facts.lease.token != job.authority:
        return True
    return job.authority_state in (AttemptState.STOPPED, AttemptState.COMMITTED)


def _reservation_is_left_over(
    facts: CoordinationFacts, job: JobFact, workers: Mapping[str, WorkerState]
) -> bool:
    """ReleaseReservation's guard: cancelled, its holder not Up, or the attempt it was for activated."""
    held = facts.reservation
    if held is None:
        return False
    if workers.get(held.incarnation) is not WorkerState.UP or job.phase is Phase.CANCELLING:
        return True
    if held.expected_token > job.current_token:
        return False
    return held.expected_token != job.authority or job.authority_state is not AttemptState.AUTHORIZED


def _worker_states(facts: Sequence[CoordinationFacts]) -> dict[str, WorkerState]:
    ids: set[IncarnationId] = set()
    for fact in facts:
        if fact.reservation is not None and (parsed := _parse(fact.reservation.incarnation)) is not None:
            ids.add(parsed)
    return {str(one): record.state for one, record in queries.worker_records(sorted(ids)).items()}
