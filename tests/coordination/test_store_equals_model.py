"""Random histories of several jobs and workers, the CoordinationStore in step with the model.

After every step all of Redis is compared with all of the model, and permits with their limits. Steps that
the model allows are tried most; the others are tried too, and must be refused by the script as well.
"""

from __future__ import annotations

import random

import pytest
import redis
from django.conf import settings as django_settings
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.coordination.fleet_model import FleetModel
from tests.coordination.fleet_steps import JOBS, TIMING
from tests.coordination.support import Data
from workers.coordination.connection import Connection
from workers.coordination.store import CoordinationStore

REBUILT = st.sampled_from(("index", "lease_due", "reservation_due"))
picks = st.integers(0, 2**16)


class Fleet(RuleBasedStateMachine):
    """What may happen next, in both."""

    def __init__(self) -> None:
        super().__init__()
        url, prefix = str(django_settings.REDIS_URL), str(django_settings.REMORA_REDIS_PREFIX)
        self.connection = Connection(url)
        self.data = Data(redis.Redis.from_url(url, decode_responses=True), prefix)
        self.data.raw.delete(*self.data.keys.all())
        self.fleet = FleetModel(CoordinationStore(self.connection, prefix, TIMING), self.data)

    def teardown(self) -> None:
        self.data.raw.delete(*self.data.keys.all())
        self.data.raw.close()
        self.connection.close()

    @rule(picked=st.lists(picks, min_size=1, max_size=8))
    def steps_that_are_allowed(self, picked: list[int]) -> None:
        for pick in picked:
            allowed = [step for step in self.fleet.steps() if step.decision.accepted]
            if allowed:
                self.fleet.take(allowed[pick % len(allowed)])
                self.fleet.check()

    @rule(pick=picks)
    def a_step_that_may_be_refused(self, pick: int) -> None:
        steps = self.fleet.steps()
        if steps:
            self.fleet.take(steps[pick % len(steps)])

    @rule(ticks=st.integers(1, 2), leases=st.booleans(), reservations=st.booleans())
    def time_passes(self, ticks: int, leases: bool, reservations: bool) -> None:
        for _ in range(ticks):
            self.fleet.tick()
        if leases:
            self.fleet.expire_leases()
        if reservations:
            self.fleet.expire_reservations()

    @rule(job=st.sampled_from(JOBS), seldom=st.integers(0, 3))
    def request_cancel(self, job: str, seldom: int) -> None:
        if not seldom:
            self.fleet.request_cancel(job)

    @rule(slot=st.sampled_from((0, 1)))
    def crash(self, slot: int) -> None:
        self.fleet.crash(slot)

    @rule(keep=st.sets(REBUILT))
    def wipe(self, keep: set[str]) -> None:
        self.fleet.wipe(keep)

    @rule(lost=st.sets(REBUILT, min_size=1))
    def lose_what_can_be_rebuilt(self, lost: set[str]) -> None:
        self.data.raw.delete(*(self.data.key(name) for name in lost))

    @rule()
    def replace_the_finished(self) -> None:
        self.fleet.replace_the_finished()

    @invariant()
    def the_stores_are_equal(self) -> None:
        self.fleet.check()


TestStoreEqualsModel = Fleet.TestCase
TestStoreEqualsModel.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)


STEPS = 250
EVERY_HISTORY = {"enqueue", "reserve", "activate", "report", "release_lease", "durable"}


@pytest.mark.parametrize("seed", range(6))
def test_long_histories_leave_the_store_equal_to_the_model(
    redis_url: str, coordination_prefix: str, data: Data, seed: int
) -> None:
    """The same without shrinking: far enough that every action is taken many times."""
    chance = random.Random(seed)
    connection = Connection(redis_url)
    fleet = FleetModel(CoordinationStore(connection, coordination_prefix, TIMING), data)
    for _ in range(STEPS):
        if chance.random() < 0.15:
            something_happens(fleet, chance)
        else:
            steps = fleet.steps()
            allowed = [step for step in steps if step.decision.accepted]
            kinds = sorted({step.name for step in allowed})
            if kinds and chance.random() < 0.8:
                kind = chance.choice(kinds)
                steps = [step for step in allowed if step.name == kind]
            fleet.take(chance.choice(steps))
        fleet.check()
        if chance.random() < 0.2:
            fleet.replace_the_finished()
    assert set(fleet.taken) >= EVERY_HISTORY
    connection.close()


def something_happens(fleet: FleetModel, chance: random.Random) -> None:
    kind = chance.choice(
        ("tick", "tick", "tick", "leases", "reservations", "cancel", "crash", "wipe", "lose")
    )
    if kind == "tick":
        fleet.tick()
    elif kind == "leases":
        fleet.expire_leases()
    elif kind == "reservations":
        fleet.expire_reservations()
    elif kind == "cancel":
        fleet.request_cancel(chance.choice(JOBS))
    elif kind == "crash":
        fleet.crash(chance.choice((0, 1)))
    elif kind == "wipe":
        fleet.wipe(set(chance.sample(["index", "lease_due", "reservation_due"], chance.randrange(4))))
    else:
        fleet.data.raw.delete(fleet.data.key(chance.choice(("index", "lease_due", "reservation_due"))))
