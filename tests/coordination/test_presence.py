"""Worker presence: a reason to ask whether an incarnation is Down, once everybody had the time to say
otherwise.
"""

import json

from tests.coordination.support import Data
from workers.coordination.replies import SweepReply
from workers.coordination.store import CoordinationStore


def grace_is_over(data: Data) -> None:
    data.write("presence", "@watch", data.read("presence", "@watch") | {"grace_until_ms": 0})


def test_nobody_is_absent_before_everybody_could_have_renewed(store: CoordinationStore, data: Data) -> None:
    sweep = store.absent_workers(["w1", "w2"])
    assert (sweep.reply, sweep.absent) == (SweepReply.GRACE, ())
    store.renew_presence(["w1"])
    grace_is_over(data)
    sweep = store.absent_workers(["w1", "w2"])
    assert (sweep.reply, sweep.absent) == (SweepReply.SWEPT, ("w2",))


def test_a_presence_lapses_by_redis_clock(store: CoordinationStore, data: Data) -> None:
    store.absent_workers(["w1"])
    grace_is_over(data)
    store.renew_presence(["w1", "w2"])
    data.raw.hset(data.key("presence"), "w1", data.now_ms())
    assert store.absent_workers(["w1", "w2"]).absent == ("w1",)


def test_the_loss_of_presences_and_a_gap_in_looking_give_grace_again(
    store: CoordinationStore, data: Data
) -> None:
    store.absent_workers(["w1"])
    grace_is_over(data)
    assert store.absent_workers(["w1"]).absent == ("w1",)
    late = data.now_ms() - store.timing.presence_ms - 1
    data.write("presence", "@watch", data.read("presence", "@watch") | {"watched_ms": late})
    assert store.absent_workers(["w1"]).reply is SweepReply.GRACE
    grace_is_over(data)
    data.raw.delete(data.key("presence"))
    assert store.absent_workers(["w1"]).reply is SweepReply.GRACE


def test_a_clock_set_back_makes_no_grace_endless(store: CoordinationStore, data: Data) -> None:
    ahead = data.now_ms() + 10**9
    data.raw.hset(data.key("presence"), "@watch", json.dumps({"watched_ms": ahead, "grace_until_ms": ahead}))
    store.absent_workers(["w1"])
    assert data.read("presence", "@watch")["grace_until_ms"] <= data.now_ms() + store.timing.presence_ms


def test_the_ended_and_the_long_forgotten_leave_nothing(store: CoordinationStore, data: Data) -> None:
    store.renew_presence(["w1"])
    store.drop_presence(["w1"])
    data.raw.hset(data.key("presence"), "of last week", data.now_ms() - 7 * 86_400_000)
    store.absent_workers(["w1"])
    assert data.raw.hkeys(data.key("presence")) == ["@watch"]


def test_asking_about_nobody_is_no_reason_for_grace(store: CoordinationStore) -> None:
    assert store.absent_workers([]).reply is SweepReply.SWEPT
