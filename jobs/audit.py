"""Replays the journal of a live deployment against the protocol, and compares the outcome with the rows.

Jobs are taken a page at a time in id order. Each page is read in one REPEATABLE READ transaction, so that
rows and history are of one moment though the fleet runs on; the history comes in bounded pages of its own.
Memory is bounded by one page of jobs and the list of incarnations.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from django.db import connection, transaction

from jobs.ids import JobId
from jobs.models import Attempt, CommittedResult, Job, WorkerIncarnation
from jobs.protocol import AttemptRecord
from jobs.replay import Event, Incarnations, Replay
from jobs.rows import attempt_record, job_record

JOBS_PER_PAGE: Final = 500
EVENTS_PER_PAGE: Final = 5_000
BROKEN_MAX: Final = 100
"""How many broken steps are told one by one; all are counted."""

_FIRST: Final = UUID(int=0)
_LAST: Final = UUID(int=2**128 - 1)
_BEFORE_ALL: Final = -(2**63)
_EVENT_COLUMNS: Final = (
    "seq, action, token, incarnation, params::text, observed::text, before::text, after::text"
)

LedgerCheck = Callable[[], Iterator[str]]
_ledger_checks: dict[str, LedgerCheck] = {}


@dataclass(frozen=True, slots=True)
class Broken:
    """One thing that is not as the protocol has it: a step (`seq`), or a job's rows (no `seq`)."""

    what: str
    job: str | None = None
    seq: int | None = None
    action: str = ""
    token: int = 0


@dataclass(slots=True)
class Report:
    """What an audit found. `clean` if nothing is broken."""

    jobs: int = 0
    rows: int = 0
    broken_count: int = 0
    broken: list[Broken] = field(default_factory=list)
    coverage: Counter[str] = field(default_factory=Counter)
    ledgers: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def clean(self) -> bool:
        return self.broken_count == 0

    @property
    def first(self) -> Broken | None:
        """The first illegal step in the order of the journal; a row that differs comes after all steps."""
        return min(self.broken, key=lambda b: (b.seq is None, b.seq or 0), default=None)

    def add(self, broken: Broken) -> None:
        self.broken_count += 1
        if len(self.broken) < BROKEN_MAX:
            self.broken.append(broken)


def register_ledger_check(name: str, check: LedgerCheck) -> None:
    """Have audits also compare a ledger with what it lists. `check` yields a sentence for each difference."""
    _ledger_checks[name] = check


def audit(job_ids: Sequence[JobId] | None = None) -> Report:
    """Replay these jobs' histories, or all of them with the incarnations' and the registered ledgers."""
    started = time.monotonic()
    report = Report()
    incarnations = _audit_incarnations(report)
    if job_ids is None:
        after = _FIRST
        while (page_end := _audit_page(report, incarnations, after)) is not None:
            after = page_end
        for name, check in _ledger_checks.items():
            report.ledgers[name] = 0
            for what in check():
                report.ledgers[name] += 1
                report.add(Broken(f"{name}: {what}"))
    else:
        for job_id in job_ids:
            with _snapshot():
                _audit_jobs(report, incarnations, [job_id], job_id, job_id)
    report.seconds = time.monotonic() - started
    return report


@contextmanager
def _snapshot() -> Iterator[None]:
    with transaction.atomic(durable=True):
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        yield


def _audit_page(report: Report, incarnations: Incarnations, after: JobId) -> JobId | None:
    """One page of jobs; its last id, or None when there are no more."""
    with _snapshot():
        ids = list(
            Job.objects.filter(id__gt=after).order_by("id").values_list("id", flat=True)[:JOBS_PER_PAGE]
        )
        # Up to the end of the page, and past the last job, so that a history without its job is met too.
        end = ids[-1] if len(ids) == JOBS_PER_PAGE else _LAST
        _audit_jobs(report, incarnations, ids, UUID(int=after.int + 1), end)
    return ids[-1] if len(ids) == JOBS_PER_PAGE else None


def _audit_jobs(
    report: Report, incarnations: Incarnations, ids: Sequence[JobId], first: JobId, last: JobId
) -> None:
    jobs: dict[JobId, Job] = Job.objects.defer("spec", "checkpoint_proof").in_bulk(list(ids))
    replays = {job_id: Replay(job.max_attempts) for job_id, job in jobs.items()}
    failed: set[JobId] = set()
    for job_id, event in _events(first, last):
        report.rows += 1
        report.coverage[event.action] += 1
        if job_id in failed:
            continue
        what = _take(replays, incarnations, job_id, event)
        if what:
            failed.add(job_id)
            report.add(Broken(what, str(job_id), event.seq, event.action, event.token))
    report.jobs += len(jobs)
    _compare_rows(report, {id_: jobs[id_] for id_ in jobs if id_ not in failed}, replays)


def _take(replays: Mapping[JobId, Replay], incarnations: Incarnations, job_id: JobId, event: Event) -> str:
    replay = replays.get(job_id)
    if replay is None:
        return "there is no such job"
    if not replay.take(event):
        return replay.wrong
    return incarnations.misses(event)


def _compare_rows(report: Report, jobs: Mapping[JobId, Job], replays: Mapping[JobId, Replay]) -> None:
    attempts: dict[JobId, dict[int, AttemptRecord]] = {job_id: {} for job_id in jobs}
    for row in Attempt.objects.filter(job_id__in=list(jobs)).iterator(chunk_size=2000):
        attempts[row.job_id][row.token] = attempt_record(row)
    results = dict(CommittedResult.objects.filter(job_id__in=list(jobs)).values_list("job_id", "token"))
    for job_id, job in jobs.items():
        differs = replays[job_id].differs_from(job_record(job), attempts[job_id])
        if not differs and results.get(job_id, 0) != job.committed:
            differs = f"it commits token {job.committed}, its result is of token {results.get(job_id, 0)}"
        if differs:
            report.add(Broken(differs, str(job_id)))


def _events(first: JobId, last: JobId) -> Iterator[tuple[JobId, Event]]:
    """The histories of the jobs from `first` to `last`, each in its order."""
    place: tuple[UUID, int] = (first, _BEFORE_ALL)
    while True:
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT job_id, {_EVENT_COLUMNS} FROM jobs_protocolevent"  # noqa: S608
                " WHERE (job_id, seq) > (%s, %s) AND job_id <= %s ORDER BY job_id, seq LIMIT %s",
                [*place, last, EVENTS_PER_PAGE],
            )
            rows = cursor.fetchall()
        for job_id, *columns in rows:
            yield job_id, read_event(columns)
        if len(rows) < EVENTS_PER_PAGE:
            return
        place = (rows[-1][0], rows[-1][1])


def read_event(columns: Sequence[Any]) -> Event:
    seq, action, token, incarnation, *texts = columns
    params, observed, before, after = (json.loads(text) if text != "{}" else {} for text in texts)
    named = None if incarnation is None else str(incarnation)
    return Event(seq, action, token, named, params, observed, before, after)


def _audit_incarnations(report: Report) -> Incarnations:
    """Every incarnation's life. Read before the jobs' histories, which are checked against it."""
    lives = Incarnations()
    broken: set[str | None] = set()
    with _snapshot():
        for event in _incarnation_events():
            report.rows += 1
            report.coverage[event.action] += 1
            if event.incarnation not in broken and (what := lives.take(event)):
                broken.add(event.incarnation)
                report.add(Broken(what, None, event.seq, event.action))
        for id_, state in WorkerIncarnation.objects.values_list("id", "state"):
            replayed = lives.state.get(str(id_))
            if replayed != state and str(id_) not in broken:
                what = f"incarnation {id_}: its history gives {replayed}, stored is {state}"
                report.add(Broken(what))
    return lives


def _incarnation_events() -> Iterator[Event]:
    after = _BEFORE_ALL
    while True:
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT {_EVENT_COLUMNS} FROM jobs_protocolevent"  # noqa: S608
                " WHERE job_id IS NULL AND seq > %s ORDER BY seq LIMIT %s",
                [after, EVENTS_PER_PAGE],
            )
            rows = cursor.fetchall()
        yield from (read_event(row) for row in rows)
        if len(rows) < EVENTS_PER_PAGE:
            return
        after = rows[-1][0]
