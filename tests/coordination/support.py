"""Facts put into Redis past the store, as a crash, a backup or a stranger would leave them; and time that
passes there.

Nothing waits for a lease to lapse: the facts are made older instead.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import redis

from jobs.protocol.records import CoordinationRecord, LeaseRecord
from workers.coordination.facts import CoordinationFacts
from workers.coordination.keys import NAMES, CoordinationKeys
from workers.coordination.requests import (
    ActivateRequest,
    EnqueueRequest,
    RenewRequest,
    ReserveRequest,
)
from workers.coordination.store import CoordinationStore, Timing

QUEUE = "default"
FRESH_MS = 500_000
"""Facts younger than this were written by the step just taken; `older` ages by more."""

Fact = dict[str, Any]


class Data:
    """The keys under one prefix, read and written raw."""

    def __init__(self, raw: redis.Redis, prefix: str) -> None:
        self.raw: Any = raw
        self.keys = CoordinationKeys(prefix)

    def key(self, name: str) -> str:
        return self.keys.key(name)

    def now_ms(self) -> int:
        seconds, micros = self.raw.time()
        return int(seconds) * 1000 + int(micros) // 1000

    def epoch(self) -> str:
        return str(self.read("permits", "@epoch")["value"])

    def read(self, key: str, field: str) -> Fact:
        fact: Fact = json.loads(self.raw.hget(self.key(key), field))
        return fact

    def write(self, key: str, field: str, fact: Fact | str) -> None:
        self.raw.hset(self.key(key), field, fact if isinstance(fact, str) else json.dumps(fact))

    def permits(self) -> Iterator[tuple[str, Fact]]:
        for field, text in self.raw.hgetall(self.key("permits")).items():
            if field != "@epoch":
                yield field, json.loads(text)

    def older(self, by_ms: int, *fields: str) -> None:
        """Time passes for these permits (or all), for nothing else."""
        for field, fact in list(self.permits()):
            if not fields or field in fields:
                fact["since_ms"] -= by_ms
                fact["deadline_ms"] -= by_ms
                self.write("permits", field, fact)
        self.raw.delete(*(self.key(name) for name in ("index", "lease_due", "reservation_due")))

    def sweep_marks(self, **changes: int) -> None:
        """Change what the epoch remembers of sweeps."""
        self.write("permits", "@epoch", self.read("permits", "@epoch") | changes)

    def present(self) -> set[str]:
        return {name for name in NAMES if self.raw.exists(self.key(name))}

    def texts(self) -> str:
        """Everything under the prefix, as one text to search in."""
        parts = []
        for name in NAMES:
            kind = self.raw.type(self.key(name))
            if kind == "hash":
                parts.append(str(self.raw.hgetall(self.key(name))))
            elif kind == "zset":
                parts.append(str(self.raw.zrange(self.key(name), 0, -1)))
        return " ".join(parts)

    def check_index(self) -> None:
        """What counts and finds permits says exactly what is there."""
        expected: set[str] = set()
        due: dict[str, dict[str, float]] = {"lease": {}, "reservation": {}}
        for field, fact in self.permits():
            kind, _, job = field.partition("/")
            due[kind][job] = float(fact["deadline_ms"])
            for scope, name in (("q", fact["queue"]), ("k", fact["key"]), ("w", fact["incarnation"])):
                expected.add("\0".join((scope, name, kind, job)))
        assert set(self.raw.zrange(self.key("index"), 0, -1)) == expected
        for kind, jobs in due.items():
            assert dict(self.raw.zrange(self.key(f"{kind}_due"), 0, -1, withscores=True)) == jobs


def reservation_fact(data: Data, timing: Timing, **changes: Any) -> Fact:
    now = data.now_ms()
    return {
        "expected_token": 1,
        "incarnation": "w1",
        "claim": "c1",
        "queue": QUEUE,
        "key": "",
        "epoch": data.epoch(),
        "since_ms": now,
        "deadline_ms": now + timing.reservation_ms,
    } | changes


def lease_fact(data: Data, timing: Timing, **changes: Any) -> Fact:
    now = data.now_ms()
    return {
        "token": 1,
        "attempt": "a1",
        "incarnation": "w1",
        "queue": QUEUE,
        "key": "",
        "epoch": data.epoch(),
        "since_ms": now,
        "deadline_ms": now + timing.lease_ms,
    } | changes


def marker_fact(data: Data, **changes: Any) -> Fact:
    now = data.now_ms()
    return {
        "expected_token": 1,
        "queue": QUEUE,
        "priority": 0,
        "set_ms": now,
        "offered_ms": now,
        "offers": 1,
        "refused": "",
        "refused_ms": 0,
    } | changes


def record_in_ticks(facts: CoordinationFacts) -> CoordinationRecord:
    """The protocol's record with ages in ticks of the tests: 0 fresh, 1 older, 2 past the deadline (= the
    limit).
    """
    record = facts.record
    if facts.reservation is not None:
        ticks = _ticks(facts.reservation.age_ms, facts.reservation.lapsed)
        record = replace(record, reservation_age=ticks)
    if facts.lease is not None:
        [lease] = record.leases
        ticks = _ticks(facts.lease.age_ms, facts.lease.lapsed)
        record = replace(record, leases=(LeaseRecord(lease.token, lease.state, ticks),))
    return record


def _ticks(age_ms: int, lapsed: bool) -> int:
    if lapsed:
        return 2
    return 0 if age_ms < FRESH_MS else 1


def reserved(store: CoordinationStore, job: str, token: int = 1, **fields: Any) -> None:
    """A job with a reservation, by the scripts' own way."""
    store.enqueue([EnqueueRequest(job, token, fields.get("queue", QUEUE))])
    request = ReserveRequest(job, token, "w1", f"claim-{job}-{token}", QUEUE)
    [reply] = store.reserve([replace(request, **fields)])
    assert reply.granted, reply


def leased(store: CoordinationStore, job: str, token: int = 1, **fields: Any) -> RenewRequest:
    """A job with a live lease, by the scripts' own way; and what renews it."""
    reserved(store, job, token, **fields)
    attempt = f"attempt-{job}-{token}"
    incarnation, claim = fields.get("incarnation", "w1"), fields.get("claim", f"claim-{job}-{token}")
    [grant] = store.activate_attempt([ActivateRequest(job, token, attempt, incarnation, claim)])
    assert grant.reply.granted, grant
    return RenewRequest(job, token, attempt, grant.epoch)
