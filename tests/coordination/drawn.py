"""Generated states of one job in a crowd, put into Redis raw, with some of what can be rebuilt lost and
some garbage.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import strategies as st

from jobs.protocol.records import CoordinationRecord
from tests.coordination.support import (
    Data,
    lease_fact,
    marker_fact,
    record_in_ticks,
    reservation_fact,
)
from workers.coordination.store import CoordinationStore

JOB = "the job"
WORKERS = ("w1", "w2")
AGES_MS = {1: 1_000_000, 2: 3_000_000}
FOREIGN = "a reservation for another token"


@dataclass(frozen=True, slots=True)
class Reserved:
    token: int
    worker: str
    age: int


@dataclass(frozen=True, slots=True)
class Leased:
    token: int
    worker: str
    age: int


@dataclass(frozen=True, slots=True)
class Drawn:
    """What is in Redis. Tokens may be stale, current, or from a future unknown to PostgreSQL."""

    current_token: int
    marker: int | None
    reservation: Reserved | None
    lease: Leased | None
    notice: bool
    progress: tuple[int, int] | None
    crowd: tuple[tuple[str, str], ...]  # kind and worker of other jobs' permits
    lost: frozenset[str]
    garbage: bool

    def install(self, store: CoordinationStore, data: Data) -> None:
        data.raw.delete(*data.keys.all())
        store.epoch()
        if self.marker is not None:
            data.write("markers", JOB, marker_fact(data, expected_token=self.marker))
        if self.reservation is not None:
            self._permit(data, store, "reservation", JOB, self.reservation)
        if self.lease is not None:
            self._permit(data, store, "lease", JOB, self.lease)
        for place, (kind, worker) in enumerate(self.crowd):
            held = Reserved(1, worker, 1) if kind == "reservation" else Leased(1, worker, 1)
            self._permit(data, store, kind, f"other{place}", held)
        if self.notice:
            data.write("notices", JOB, {"token": self.current_token, "at_ms": data.now_ms()})
        if self.progress is not None:
            token, amount = self.progress
            report = {"token": token, "progress": str(amount), "total": "", "phase": "", "at_ms": 0}
            data.write("progress", JOB, report)
        store.epoch()  # the index is made
        if self.lost:
            data.raw.delete(*(data.key(name) for name in self.lost))
        if self.garbage:
            data.write("permits", "lease/unreadable", "{")
            data.write("permits", "reservation/of old", reservation_fact(data, store.timing, epoch="old"))
            data.raw.zadd(data.key("index"), {"q\0default\0lease\0ghost": 0})

    def _permit(
        self, data: Data, store: CoordinationStore, kind: str, job: str, held: Reserved | Leased
    ) -> None:
        since = data.now_ms() - AGES_MS[held.age]
        life_ms = store.timing.lease_ms if kind == "lease" else store.timing.reservation_ms
        times = {"since_ms": since, "deadline_ms": since + life_ms, "incarnation": held.worker}
        if kind == "lease":
            fact = lease_fact(data, store.timing, token=held.token, attempt=attempt_id(held.token), **times)
        else:
            fact = reservation_fact(data, store.timing, expected_token=held.token, **times)
        data.write("permits", f"{kind}/{job}", fact)

    def reservations_of(self, worker: str) -> int:
        mine = self.reservation is not None and self.reservation.worker == worker
        return self.crowd.count(("reservation", worker)) + mine

    @property
    def permits(self) -> int:
        return len(self.crowd) + (self.reservation is not None) + (self.lease is not None)


def attempt_id(token: int) -> str:
    return f"attempt {token}"


def seen(store: CoordinationStore, expected_token: int, reserved_token: int) -> CoordinationRecord:
    """The job's record as the protocol means it: a marker counts for the token it offers, and a reservation
    for another token is somebody's, but nobody's here.
    """
    facts = store.snapshot([JOB]).facts[JOB]
    record = record_in_ticks(facts)
    offered = facts.marker is not None and facts.marker.expected_token == expected_token
    foreign = facts.reservation is not None and facts.reservation.expected_token != reserved_token
    return replace(record, queued=offered, reservation=FOREIGN if foreign else record.reservation)


@st.composite
def states(draw: st.DrawFn, token_min: int = 0, ahead: int = 1) -> Drawn:
    """`ahead`: how far beyond the current token a fact may be."""
    current = draw(st.integers(token_min, 3))
    future = st.integers(1, current + ahead) if current + ahead >= 1 else st.nothing()
    worker, age = st.sampled_from(WORKERS), st.sampled_from(sorted(AGES_MS))
    permits = st.tuples(st.sampled_from(("reservation", "lease")), worker)
    return Drawn(
        current_token=current,
        marker=draw(st.none() | st.integers(max(current, 1), current + 2)),
        reservation=draw(
            st.none() | st.builds(Reserved, st.integers(max(current, 1), current + 1), worker, age)
        ),
        lease=draw(st.none() | st.builds(Leased, future, worker, age)),
        notice=draw(st.booleans()),
        progress=draw(st.none() | st.tuples(future, st.integers(1, 3))),
        crowd=tuple(draw(st.lists(permits, max_size=4))),
        lost=draw(st.frozensets(st.sampled_from(("index", "lease_due", "reservation_due")))),
        garbage=draw(st.booleans()),
    )
