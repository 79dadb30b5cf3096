"""This process' CoordinationStore, built from settings."""

from __future__ import annotations

from functools import cache

from django.conf import settings

from workers.coordination.connection import Connection, Patience
from workers.coordination.store import CoordinationStore, Timing


@cache
def coordination() -> CoordinationStore:
    """The store that all of this process' threads share. It connects on first use, and anew after a fork."""
    patience = Patience(timeout_ms=settings.REMORA_REDIS_TIMEOUT_MS, retries=settings.REMORA_REDIS_RETRIES)
    timing = Timing(
        lease_ms=settings.REMORA_LEASE_MS,
        renew_ms=settings.REMORA_RENEW_MS,
        reservation_ms=settings.REMORA_RESERVATION_MS,
        presence_ms=settings.REMORA_PRESENCE_MS,
        reoffer_ms=settings.REMORA_REOFFER_S * 1000,
        reoffer_max_ms=settings.REMORA_REOFFER_MAX_S * 1000,
        # Sweeps that are rarer than leases are long must not look like an outage each time.
        sweep_gap_ms=max(settings.REMORA_LEASE_MS, 3 * settings.REMORA_REAPER_S * 1000),
    )
    connection = Connection(settings.REDIS_URL or "redis://127.0.0.1:1/0", patience)
    return CoordinationStore(
        connection, settings.REMORA_REDIS_PREFIX, timing, settings.REMORA_COORDINATION_BATCH_MAX
    )
