"""Races between real connections: every contestant waits at a barrier, and each has its own connection."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.db import connection

from jobs import audit

Contestant = Callable[[], Any]
JOIN_S = 30


@pytest.fixture
def race() -> Callable[[Sequence[Contestant]], list[Any]]:
    return run_race


def run_race(contestants: Sequence[Contestant]) -> list[Any]:
    """Let all of these go at once; what each returned, in order. An error of one is the test's error."""
    start = threading.Barrier(len(contestants))
    answers: list[Any] = [None] * len(contestants)
    errors: list[BaseException] = []

    def run(place: int, contestant: Contestant) -> None:
        try:
            connection.ensure_connection()  # so that what is raced is the transition, not the connecting
            start.wait(JOIN_S)
            answers[place] = contestant()
        except BaseException as error:
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=given) for given in enumerate(contestants)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(JOIN_S)
    assert not any(thread.is_alive() for thread in threads), "a contestant hangs"
    if errors:
        raise errors[0]
    return answers


@pytest.fixture(autouse=True)
def _history_is_allowed(transactional_db: None) -> Any:
    """Whoever won, the journal replays, and the rows are what it gives."""
    yield
    report = audit.audit()
    assert report.clean, report.broken
