"""System checks of the settings: a mistyped variable or impossible periods are reported, not ignored."""

import os
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register

from remora_site.settings import env


@register()
def remora_variables_are_known(**_: Any) -> list[CheckMessage]:
    """A mistyped REMORA_ variable would otherwise leave the default in force without a word."""
    given = {
        name for name in os.environ if name.startswith("REMORA_") and not name.startswith("REMORA_TEST_")
    }
    unknown = sorted(given - env.names)
    return [Warning(f"{name} is set, but nothing reads it.", id="remora.W001") for name in unknown]


@register()
def a_lease_outlives_its_renewals(**_: Any) -> list[CheckMessage]:
    """One missed renewal must not cost a healthy attempt its lease."""
    if settings.REMORA_RENEW_MS * 2 <= settings.REMORA_LEASE_MS:
        return []
    message = (
        "REMORA_RENEW_MS must be at most half of REMORA_LEASE_MS, or one missed renewal loses the lease."
    )
    return [Error(message, id="remora.E001")]
