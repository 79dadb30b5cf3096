"""Redis that forgets scripts, freezes, refuses, is full or gone: known errors, in bounded time, without
secrets.
"""

import os
import time
from pathlib import Path

import pytest

from tests.coordination.private_redis import PASSWORD, PrivateRedis
from tests.coordination.support import QUEUE, Data, leased
from workers.coordination.connection import Connection, Patience
from workers.coordination.errors import CoordinationUnavailable
from workers.coordination.replies import EnqueueReply, RenewReply, SweepReply
from workers.coordination.requests import EnqueueRequest, Heartbeat, ReportRequest
from workers.coordination.store import CoordinationStore, Timing


def test_a_server_that_forgot_the_scripts_is_sent_them_again(
    private_store: CoordinationStore, private_redis: PrivateRedis
) -> None:
    renew = leased(private_store, "j1")
    beat = Heartbeat(renew, ReportRequest("j1", 1, renew.attempt_id, 1))
    private_redis.raw.script_flush()
    assert private_store.renew_lease([renew]) == [RenewReply.RENEWED]
    private_redis.raw.script_flush()
    [answer] = private_store.heartbeat([beat])
    assert answer.lease is RenewReply.RENEWED
    private_redis.kill()
    private_redis.start()
    [answer] = private_store.heartbeat([beat])
    assert answer.lease is RenewReply.LEASE_LOST


def test_a_restart_between_two_calls_is_not_an_error(
    private_store: CoordinationStore, private_redis: PrivateRedis
) -> None:
    private_store.epoch()
    private_redis.kill()
    private_redis.start()
    assert private_store.enqueue([EnqueueRequest("j1", 1, QUEUE)]) == [EnqueueReply.ENQUEUED]


def test_a_server_that_is_gone_or_frozen_is_unavailable_within_bounds(
    private_store: CoordinationStore, private_redis: PrivateRedis
) -> None:
    private_store.epoch()
    private_redis.freeze()
    started = time.monotonic()
    with pytest.raises(CoordinationUnavailable):
        private_store.epoch()
    assert time.monotonic() - started < 5
    private_redis.thaw()
    assert private_store.epoch().value
    private_redis.kill()
    with pytest.raises(CoordinationUnavailable):
        private_store.epoch()


def test_a_call_whose_answer_was_lost_is_safe_to_ask_again(
    private_store: CoordinationStore, private_redis: PrivateRedis
) -> None:
    renew = leased(private_store, "j1")
    private_redis.freeze()
    with pytest.raises(CoordinationUnavailable):
        private_store.enqueue([EnqueueRequest("j2", 1, QUEUE)])
    private_redis.thaw()  # and now it runs what it was sent, twice
    assert private_store.enqueue([EnqueueRequest("j2", 1, QUEUE)]) == [EnqueueReply.MARKER_PRESENT]
    assert private_store.renew_lease([renew]) == [RenewReply.RENEWED]


def test_a_full_server_refuses_renewals_and_sweeps_alike(
    private_store: CoordinationStore, private_redis: PrivateRedis, private_data: Data
) -> None:
    """If it swept while nobody can renew, a full Redis would kill healthy attempts."""
    renew = leased(private_store, "j1")
    private_data.older(private_store.timing.lease_ms)
    private_store.epoch()
    private_redis.raw.config_set("maxmemory", 1)
    with pytest.raises(CoordinationUnavailable, match="OOM"):
        private_store.renew_lease([renew])
    with pytest.raises(CoordinationUnavailable, match="OOM"):
        private_store.heartbeat([Heartbeat(renew)])
    with pytest.raises(CoordinationUnavailable, match="OOM"):
        private_store.expire_leases()
    private_redis.raw.config_set("maxmemory", 0)
    assert private_store.renew_lease([renew]) == [RenewReply.RENEWED]
    sweep = private_store.expire_leases()
    assert (sweep.reply, sweep.lapsed) == (SweepReply.SWEPT, ())


def test_a_read_only_replica_is_unavailable(
    private_store: CoordinationStore, private_redis: PrivateRedis
) -> None:
    private_redis.raw.replicaof("127.0.0.1", 1)
    with pytest.raises(CoordinationUnavailable):
        private_store.enqueue([EnqueueRequest("j1", 1, QUEUE)])


@pytest.mark.parametrize(
    "url",
    [
        "redis://:se%2Fcret@127.0.0.1:1/0",
        "redis://user:se%2Fcret@host.invalid:6379/0",
        "unix://:se%2Fcret@/nowhere/redis.sock",
    ],
)
def test_errors_hold_neither_password_nor_address(url: str) -> None:
    patience = Patience(connect_ms=200, retries=0)
    store = CoordinationStore(Connection(url, patience), "{x}:", Timing())
    with pytest.raises(CoordinationUnavailable) as caught:
        store.epoch()
    text = f"{caught.value!r} {caught.value.__cause__!r}"
    assert "se/cret" not in text
    assert "se%2Fcret" not in text
    assert caught.value.__suppress_context__


def test_a_wrong_password_is_unavailable_and_not_shown(private_redis: PrivateRedis) -> None:
    url = f"unix://:wrong-{'x' * 10}@{private_redis.socket}"
    store = CoordinationStore(Connection(url, Patience(retries=0)), "{x}:", Timing())
    with pytest.raises(CoordinationUnavailable) as caught:
        store.epoch()
    assert "wrong-" not in str(caught.value)
    assert PASSWORD not in str(caught.value)


def test_no_connection_survives_a_fork(private_store: CoordinationStore, tmp_path: Path) -> None:
    """The child asks through a connection of its own, and the parent's stays usable while and after it
    does.
    """
    renew = leased(private_store, "j1")
    answer = tmp_path / "answer"
    child = os.fork()
    if child == 0:
        # Nothing of pytest may run in here: whatever happens, the child ends at once.
        try:
            inherited = private_store._runner._connection._made
            answer.write_text(f"{inherited} {private_store.renew_lease([renew])[0]}")
        finally:
            os._exit(0)
    for _ in range(200):
        assert private_store.renew_lease([renew]) == [RenewReply.RENEWED]
    os.waitpid(child, 0)
    assert answer.read_text() == f"None {RenewReply.RENEWED}"


def test_a_prefix_without_a_hash_tag_is_refused() -> None:
    for prefix in ("remora:", "{}:", "}{:", ""):
        with pytest.raises(ValueError, match="hash tag"):
            CoordinationStore(Connection("redis://127.0.0.1:1/0"), prefix, Timing())


def test_the_settings_make_a_store_that_works(redis_url: str, coordination_prefix: str) -> None:
    from workers.coordination import coordination

    assert coordination() is coordination()
    assert coordination().epoch().value
