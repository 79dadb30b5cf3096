"""The scripts' longer answers, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workers.coordination import arguments
from workers.coordination.facts import (
    Beat,
    CoordinationFacts,
    Garbage,
    Lapsed,
    Lease,
    LiveProgress,
    Marker,
    PermitCounts,
    Reservation,
    ScanPage,
    Snapshot,
    Sweep,
)
from workers.coordination.keys import JOB_HASHES
from workers.coordination.replies import RenewReply, ReportReply, SweepReply
from workers.coordination.requests import Heartbeat, Id
from workers.coordination.runner import Answer, Element, ScriptRunner


def facts(raw: Sequence[Any]) -> CoordinationFacts:
    """One job's reply of snapshot.lua."""
    marker, reservation, lease, notice, progress = raw
    return CoordinationFacts(
        marker=Marker(*marker) if marker else None,
        reservation=Reservation(*_with_flag(reservation)) if reservation else None,
        lease=Lease(*_with_flag(lease)) if lease else None,
        notice_token=notice[0] if notice else None,
        progress=live_progress(*progress) if progress else None,
    )


def _with_flag(raw: Sequence[Any]) -> list[Any]:
    """Its last value is a yes or no, which Redis spells 1 or 0."""
    return [*raw[:-1], bool(raw[-1])]


def live_progress(token: int, progress: str, total: str, phase: str, age_ms: int) -> LiveProgress:
    """Byte counts come as digits: a Lua number would not hold them exactly."""
    return LiveProgress(token, int(progress), int(total) if total else None, phase, age_ms)


def snapshot(runner: ScriptRunner, job_ids: Sequence[Id]) -> Snapshot:
    if not job_ids:
        return Snapshot(runner.once("ensure_epoch", {}).epoch, {})
    answer = runner.batch("snapshot", {}, map(arguments.job, job_ids))
    return Snapshot(answer.epoch, dict(zip(job_ids, map(facts, answer.replies), strict=True)))


def sweep(answer: Answer) -> Sweep:
    """The reply of an expire script."""
    [(word, more, lapsed)] = answer.replies
    return Sweep(SweepReply(word), tuple(Lapsed(*one) for one in lapsed), bool(more), answer.epoch)


def beats(runner: ScriptRunner, timing: Mapping[str, int], asked: Sequence[Heartbeat]) -> list[Beat]:
    """Renew, report, hear: three scripts in one round trip per chunk. The report comes after the renewal,
    so that its lease is the renewed one.
    """
    answered: list[Beat] = []
    for start in range(0, len(asked), runner.batch_max):
        answered.extend(_beats_of_chunk(runner, timing, asked[start : start + runner.batch_max]))
    return answered


def _beats_of_chunk(
    runner: ScriptRunner, timing: Mapping[str, int], asked: Sequence[Heartbeat]
) -> list[Beat]:
    reports = [beat.report for beat in asked if beat.report is not None]
    calls = [
        runner.call("renew_lease", timing, [arguments.renew(beat.renew) for beat in asked]),
        runner.call("read_notices", {}, [arguments.job(beat.renew.job_id) for beat in asked]),
    ]
    if reports:
        calls.append(runner.call("report_progress", {}, map(arguments.report, reports)))
    renewed, notices, *reported = runner.together(calls)
    words = iter(reported[0].replies if reported else ())
    return [
        Beat(
            lease=RenewReply(renewal),
            cancel_notice=notice == "notice",
            epoch=renewed.epoch.value,
            report=ReportReply(next(words)) if beat.report is not None else None,
        )
        for beat, renewal, notice in zip(asked, renewed.replies, notices.replies, strict=True)
    ]


def scan(runner: ScriptRunner, cursor: str | None, rows_hint: int) -> ScanPage:
    """One page. A cursor is the key being scanned and Redis' own cursor in it."""
    kind, _, place = (cursor or f"{JOB_HASHES[0]}:0").partition(":")
    given: Element = {"kind": kind, "cursor": place, "rows_hint": rows_hint}
    [(next_place, job_ids, fields)] = runner.once("scan_jobs", given).replies
    garbage = tuple(Garbage(kind, field) for field in fields)
    return ScanPage(_next_cursor(kind, next_place), tuple(job_ids), garbage)


def _next_cursor(kind: str, next_place: str) -> str | None:
    if next_place != "0":
        return f"{kind}:{next_place}"
    later = JOB_HASHES[JOB_HASHES.index(kind) + 1 :]
    return f"{later[0]}:0" if later else None


def permit_counts(
    runner: ScriptRunner, queues: Sequence[str], keys: Sequence[str], incarnations: Sequence[str]
) -> PermitCounts:
    asked: list[Element] = [{"scope": "all", "name": ""}]
    named = [("queue", queues), ("key", keys), ("incarnation", incarnations)]
    asked += [
        {"scope": scope, "name": arguments.text(scope, name)} for scope, names in named for name in names
    ]
    (reservations, leases), *rest = runner.batch("count_permits", {}, asked).replies
    counted = iter(rest)
    by_queue = {name: sum(next(counted)) for name in queues}
    by_key = {name: sum(next(counted)) for name in keys}
    by_incarnation = {name: next(counted) for name in incarnations}
    return PermitCounts(
        total=reservations + leases,
        reservations=reservations,
        leases=leases,
        by_queue=by_queue,
        by_key=by_key,
        reserved_by_incarnation={name: counts[0] for name, counts in by_incarnation.items()},
        leased_by_incarnation={name: counts[1] for name, counts in by_incarnation.items()},
    )
