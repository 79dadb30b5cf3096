"""The deployment's limits, as the coordination scripts take them."""

from __future__ import annotations

from django.conf import settings

from workers.coordination.requests import NO_LIMIT, PermitLimits


def limits_for(queue: str, *, local_limit: int = NO_LIMIT) -> PermitLimits:
    """Permits that a job of this queue competes for. A limit that is not set is none."""
    return PermitLimits(
        global_limit=settings.REMORA_GLOBAL_LIMIT,
        queue_limit=int(settings.REMORA_QUEUE_LIMITS.get(queue, NO_LIMIT)),
        key_limit=settings.REMORA_KEY_LIMIT or NO_LIMIT,
        local_limit=local_limit,
    )
