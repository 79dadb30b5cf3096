"""The server itself dies and comes back, empty or with what it held a while ago; or it says that it is full.

This fleet has a Redis of its own, so that nobody else's tests are in the way.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from jobs.models import Attempt, Job
from jobs.protocol.states import Phase
from remora_site.stack.redis_server import program
from tests.freezing import freeze, thaw
from tests.waiting import wait_until
from tests.workers.fleet import LEASE_S, Fleet


class OwnRedis:
    """One redis-server on a port. What it saved stays in its directory between its lives."""

    def __init__(self, directory: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.directory = directory
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def raw(self) -> redis.Redis:
        return redis.Redis.from_url(self.url)

    def start(self) -> None:
        self.process = subprocess.Popen(
            [
                *(str(program("redis-server")), "--port", str(self.port), "--bind", "127.0.0.1"),
                *("--dir", str(self.directory), "--save", "", "--maxmemory-policy", "noeviction"),
            ],
            stdout=subprocess.DEVNULL,
        )
        wait_until(self._answers, 10, "the fleet's own Redis answers")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def _answers(self) -> bool:
        try:
            with self.raw() as client:
                return bool(client.ping())
        except redis.RedisError:
            return False


@pytest.fixture(scope="module")
def own(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OwnRedis]:
    """Everything of this module's fleet moves to a Redis of its own."""
    server = OwnRedis(tmp_path_factory.mktemp("redis"))
    for name in ("beat", "control"):
        fleet.members[name].kill_group()
    fleet.environment = {"REDIS_URL": server.url}
    fleet.beat()
    fleet.control()
    fleet.worker("w1", queues="jobs.lives", concurrency=2)
    yield server
    fleet.stop()
    server.kill()


def offer(fleet: Fleet, *steps: dict[str, object]) -> Job:
    """Submitted here, where the fast path speaks to another Redis: the dispatch duty finds it."""
    return Job.objects.get(id=fleet.submit(*steps, queue="lives"))


def test_a_redis_that_restarts_empty_costs_no_attempt_and_nobody_goes_deaf(
    fleet: Fleet, own: OwnRedis
) -> None:
    running = [offer(fleet, {"do": "sleep", "s": 3 * LEASE_S}) for _ in range(2)]
    waiting = [offer(fleet, {"do": "write", "bytes": 1}) for _ in range(3)]
    for job in running:
        fleet.wait_executing(job.id)
    incarnation = Attempt.objects.get(job=running[0]).worker_id
    own.kill()
    gone_until = time.monotonic() + 1
    wait_until(lambda: time.monotonic() > gone_until, 5, "a second without Redis has passed")
    own.start()
    for job in [*running, *waiting]:
        ended = fleet.wait_for(job.id, timeout_s=60)
        assert (ended.phase, ended.current_token) == (Phase.SUCCEEDED, 1)
    back = time.monotonic()
    later = fleet.wait_for(offer(fleet, {"do": "write", "bytes": 1}).id)
    assert later.phase == Phase.SUCCEEDED
    assert time.monotonic() - back < 10
    assert Attempt.objects.get(job=later).worker_id == incarnation


def test_a_redis_that_comes_back_with_old_data_revives_nothing(fleet: Fleet, own: OwnRedis) -> None:
    before = offer(fleet, {"do": "sleep", "s": 1})
    fleet.wait_executing(before.id)
    with own.raw() as client:
        client.save()
    assert fleet.wait_for(before.id).phase == Phase.SUCCEEDED
    running = offer(fleet, {"do": "sleep", "s": 2 * LEASE_S})
    fleet.wait_executing(running.id)
    own.kill()
    own.start()
    ended = fleet.wait_for(running.id, timeout_s=60)
    assert (ended.phase, ended.current_token) == (Phase.SUCCEEDED, 1)
    assert Job.objects.get(id=before.id).current_token == 1
    (own.directory / "dump.rdb").unlink()

    def only_epoch_is_left() -> bool:
        with own.raw() as client:
            prefix = os.environ["REMORA_REDIS_PREFIX"]
            return set(client.hkeys(f"{prefix}permits")) <= {b"@epoch"} and not client.hlen(
                f"{prefix}markers"
            )

    wait_until(only_epoch_is_left, 20, "the revived lease and marker are collected")


def test_a_redis_that_is_full_stops_nothing_for_good(fleet: Fleet, own: OwnRedis) -> None:
    running = offer(fleet, {"do": "sleep", "s": 2.5 * LEASE_S})
    fleet.wait_executing(running.id)
    with own.raw() as client:
        client.config_set("maxmemory", "1")
        full_until = time.monotonic() + 1.5 * LEASE_S
        wait_until(lambda: time.monotonic() > full_until, 30, "a lease and a half has passed on a full Redis")
        assert Job.objects.get(id=running.id).authority == 1
        client.config_set("maxmemory", "0")
    ended = fleet.wait_for(running.id, timeout_s=60)
    assert (ended.phase, ended.current_token) == (Phase.SUCCEEDED, 1)


def test_a_redis_that_hangs_is_survived(fleet: Fleet, own: OwnRedis) -> None:
    running = offer(fleet, {"do": "sleep", "s": 2 * LEASE_S})
    fleet.wait_executing(running.id)
    freeze(own.process.pid)
    hangs_until = time.monotonic() + 2 * LEASE_S
    wait_until(lambda: time.monotonic() > hangs_until, 30, "two leases have passed without an answer")
    thaw(own.process.pid)
    ended = fleet.wait_for(running.id, timeout_s=60)
    assert (ended.phase, ended.current_token) == (Phase.SUCCEEDED, 1)
    follower = fleet.wait_for(offer(fleet, {"do": "write", "bytes": 1}).id, timeout_s=20)
    assert follower.phase == Phase.SUCCEEDED
