"""Redis' clock is set back, as when a machine started before it knew the time: nothing waits for it."""

from __future__ import annotations

from tests.coordination.support import QUEUE, Data, leased
from workers.coordination.replies import EnqueueReply
from workers.coordination.requests import EnqueueRequest
from workers.coordination.store import CoordinationStore

AHEAD_MS = 4 * 365 * 86_400_000


def test_an_epoch_that_begins_in_the_future_begins_now(store: CoordinationStore, data: Data) -> None:
    held = leased(store, "j1")
    data.sweep_marks(since_ms=data.now_ms() + AHEAD_MS)
    epoch = store.epoch()
    assert epoch.since_ms <= data.now_ms()
    assert epoch.value == held.grant_epoch, "it is the same epoch: no lease is lost"


def test_an_offer_from_the_future_is_old_enough_to_be_made_again(
    store: CoordinationStore, data: Data
) -> None:
    request = EnqueueRequest("j1", 1, QUEUE, 0)
    store.enqueue([request])
    data.write("markers", "j1", data.read("markers", "j1") | {"offered_ms": data.now_ms() + AHEAD_MS})
    marker = store.snapshot(["j1"]).facts["j1"].marker
    assert marker is not None
    assert marker.offered_age_ms >= store.timing.reoffer_ms
    assert store.enqueue([request]) == [EnqueueReply.REOFFERED]


def test_a_presence_promised_for_the_future_lapses_in_its_own_time(
    store: CoordinationStore, data: Data
) -> None:
    store.absent_workers(["w1"])
    data.raw.hset(data.key("presence"), "w1", data.now_ms() + AHEAD_MS)
    store.absent_workers(["w1"])
    deadline_ms = int(data.raw.hget(data.key("presence"), "w1") or 0)
    assert deadline_ms <= data.now_ms() + store.timing.presence_ms
