"""What the tests of duties stand on: both stores empty, Redis as it is long after a wipe, a lease as
activation leaves it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from jobs.ids import IncarnationId
from jobs.protocol import Fence
from tests.coordination.conftest import data
from tests.coordination.support import Data, lease_fact
from tests.durable import driver
from workers import handlers
from workers.coordination import coordination
from workers.handlers.probe import ProbeHandler
from workers.reconciler.dispatch import Place
from workers.reconciler.stages import Aside

__all__ = ["data", "ground", "leased", "old"]
LONG_MS = 10_000_000


@pytest.fixture(autouse=True)
def ground(transactional_db: None, coordination_prefix: str) -> Iterator[None]:
    handlers.register(ProbeHandler())
    coordination.cache_clear()
    Place.after = None
    Aside.until.clear()
    yield
    coordination.cache_clear()


@pytest.fixture
def old(data: Data) -> Data:
    """Redis as it is long after its last wipe, swept a moment ago."""
    epoch = coordination().epoch()
    coordination().expire_leases()
    fact = data.read("permits", "@epoch")
    data.write("permits", "@epoch", fact | {"since_ms": epoch.since_ms - LONG_MS})
    return data


def leased(data: Data, fence: Fence, worker: IncarnationId, **changes: Any) -> None:
    """The attempt's lease, as ActivateAttempt would have left it."""
    timing = coordination().timing
    attempt = driver.attempt(fence)
    facts = {"token": fence.token, "attempt": str(attempt.id), "incarnation": str(worker)}
    data.write("permits", f"lease/{fence.job_id}", lease_fact(data, timing) | facts | changes)
    data.older(0)
