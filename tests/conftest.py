"""What every test may ask for. The servers themselves are started by tests/stack_plugin.py."""

from collections.abc import Iterator

import pytest
from django.conf import settings


@pytest.fixture(scope="session")
def redis_url() -> str:
    return str(settings.REDIS_URL)


@pytest.fixture
def coordination_prefix(redis_url: str) -> Iterator[str]:
    """This process' own key prefix, with no key under it before and after; keys of other processes stay."""
    delete_own_keys(redis_url)
    yield settings.REMORA_REDIS_PREFIX
    delete_own_keys(redis_url)


def delete_own_keys(redis_url: str) -> None:
    import redis

    with redis.Redis.from_url(redis_url) as client:
        for prefix in (settings.REMORA_REDIS_PREFIX, settings.REMORA_BROKER_PREFIX):
            for key in client.scan_iter(match=f"{prefix}*", count=1000):
                client.delete(key)
