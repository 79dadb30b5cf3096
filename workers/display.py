"""Quantities as people read them, the same in a terminal and on a page. Values in, text out."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any


def size(count: int | None) -> str:
    """12 B, 3.4 MiB."""
    if count is None:
        return "-"
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def duration(seconds: float | None) -> str:
    """4.2 s, 3 min 5 s, 2 h 10 min, 3 d 4 h."""
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"


def clock(moment: str | datetime | None) -> str:
    """The time of day, in UTC."""
    if moment is None:
        return "-"
    at = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    return at.strftime("%H:%M:%S")


def percent(done: int, total: int | None) -> int | None:
    """How much is done, rounded down: 100 means all."""
    return min(100, 100 * done // total) if total else None


def progress(live: Mapping[str, Any] | None) -> str:
    """Live progress in a few words."""
    if live is None:
        return ""
    share = percent(live["progress"], live["total"])
    return size(live["progress"]) + ("" if share is None else f" of {size(live['total'])} ({share} %)")
