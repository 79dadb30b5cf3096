"""What every test may ask for. The servers themselves are started by tests/stack_plugin.py."""

import os
from collections.abc import Iterator

import pytest
import redis
from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connection
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.dispatch import receiver
from django.test.utils import setup_databases, teardown_databases
from pytest_django import DjangoDbBlocker


@receiver(connection_created)
def say_that_this_is_a_test(connection: BaseDatabaseWrapper, **_: object) -> None:
    """Tables whose rules TRUNCATE would pass by refuse it, except on a connection that asked for it."""
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SET remora.allow_truncate = 'on'")


@pytest.fixture(scope="session")
def django_db_setup(
    django_test_environment: None, django_db_modify_db_settings: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[None]:
    """The test database, whichever tests were chosen.

    pytest-django's own fixture makes none unless a chosen test bears its mark; those of a fleet do not,
    because the fleet outlives each of them.
    """
    with django_db_blocker.unblock():
        made = setup_databases(verbosity=0, interactive=False, aliases={DEFAULT_DB_ALIAS: None})
    yield
    with django_db_blocker.unblock():
        teardown_databases(made, verbosity=0)


@pytest.fixture(scope="session")
def redis_url() -> str:
    return str(settings.REDIS_URL)


@pytest.fixture
def coordination_prefix(redis_url: str) -> Iterator[str]:
    """This process' own key prefix, with no key under it before and after; others' keys stay."""
    delete_own_keys(redis_url)
    yield settings.REMORA_REDIS_PREFIX
    delete_own_keys(redis_url)


@pytest.fixture
def process_environment(transactional_db: None) -> dict[str, str]:
    """Our own key prefix, with no key under it before and after; the keys of other processes stay."""
    test_database = str(connection.settings_dict["NAME"])
    server, _, _ = settings.REMORA_DATABASE_URL.rpartition("/")
    return os.environ | {"DATABASE_URL": f"{server}/{test_database}"}


def delete_own_keys(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        for prefix in (settings.REMORA_REDIS_PREFIX, settings.REMORA_BROKER_PREFIX):
            for key in client.scan_iter(match=f"{prefix}*", count=1000):
                client.delete(key)
