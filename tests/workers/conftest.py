"""A fleet per module: starting one takes seconds, and jobs do not meet each other but through permits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connections
from pytest_django import DjangoDbBlocker

from jobs.audit import audit
from tests.conftest import delete_own_keys
from tests.workers.fleet import Fleet
from workers.handlers import register
from workers.handlers.probe import ProbeHandler


@pytest.fixture(scope="module")
def fleet(
    django_db_setup: None,
    django_db_blocker: DjangoDbBlocker,
    tmp_path_factory: pytest.TempPathFactory,
    redis_url: str,
) -> Iterator[Fleet]:
    """Nothing runs yet but beat and one control worker. The tables are emptied when all of it has ended."""
    register(ProbeHandler())
    home: Path = tmp_path_factory.mktemp("fleet")
    with django_db_blocker.unblock():
        delete_own_keys(redis_url)
        fleet = Fleet(home)
        try:
            fleet.beat()
            fleet.control()
            yield fleet
            fleet.stop()
            report = audit()
            assert report.clean, report.broken
        finally:
            fleet.stop()
            delete_own_keys(redis_url)
            call_command("flush", interactive=False, verbosity=0)
            connections.close_all()
