"""The CoordinationStore: Redis through Lua scripts. The only package that speaks to Redis.

`coordination()` is this process' store, built from settings. What it holds and why each gap is safe:
docs/coordination.md
"""

from workers.coordination.errors import CoordinationBroken, CoordinationMisuse, CoordinationUnavailable
from workers.coordination.store import CoordinationStore, Timing
from workers.coordination.wiring import coordination

__all__ = [
    "CoordinationBroken",
    "CoordinationMisuse",
    "CoordinationStore",
    "CoordinationUnavailable",
    "Timing",
    "coordination",
]
