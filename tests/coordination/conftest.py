"""A store on the run's Redis under this process' own prefix, and Redis servers that a test may hurt."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.coordination.private_redis import PrivateRedis
from tests.coordination.support import Data
from workers.coordination.connection import Connection, Patience
from workers.coordination.store import CoordinationStore, Timing


@pytest.fixture
def store(redis_url: str, coordination_prefix: str) -> Iterator[CoordinationStore]:
    connection = Connection(redis_url)
    yield CoordinationStore(connection, coordination_prefix, Timing(), batch_max=50)
    connection.close()


@pytest.fixture
def patient_store(redis_url: str, coordination_prefix: str) -> Iterator[CoordinationStore]:
    """Its leases are so long that what a test itself takes does not count."""
    connection = Connection(redis_url)
    timing = Timing(lease_ms=2_000_000, reservation_ms=2_000_000, sweep_gap_ms=10_000_000)
    yield CoordinationStore(connection, coordination_prefix, timing)
    connection.close()


@pytest.fixture
def data(redis_url: str, coordination_prefix: str) -> Iterator[Data]:
    with redis.Redis.from_url(redis_url, decode_responses=True, encoding_errors="surrogateescape") as raw:
        yield Data(raw, coordination_prefix)


@pytest.fixture
def private_redis() -> Iterator[PrivateRedis]:
    directory = Path(tempfile.mkdtemp(prefix="remora-redis-"))
    server = PrivateRedis(directory)
    server.start()
    yield server
    server.stop()
    shutil.rmtree(directory)


@pytest.fixture
def private_store(private_redis: PrivateRedis) -> Iterator[CoordinationStore]:
    connection = Connection(private_redis.url, Patience(timeout_ms=500, retries=1))
    yield CoordinationStore(connection, "{private}:", Timing())
    connection.close()


@pytest.fixture
def private_data(private_redis: PrivateRedis) -> Iterator[Data]:
    with private_redis.raw as raw:
        yield Data(raw, "{private}:")
