"""Template filters: quantities and names as people read them. Escaping is the template's, as always."""

from __future__ import annotations

import json
from typing import Any

from django import template

from jobs.protocol.states import Phase
from workers import display
from workers.files.names import show_name

register = template.Library()


@register.filter
def size(count: int | None) -> str:
    return display.size(count)


@register.filter
def duration(seconds: float | None) -> str:
    return display.duration(seconds)


@register.filter
def moment(text: str | None) -> str:
    """2026-11-30 12:03:04 UTC, from a report's ISO text."""
    return f"{text[:10]} {text[11:19]}" if text else "-"


@register.filter
def shown(text: Any) -> str:
    """A name, with every odd character as a visible escape."""
    return show_name(str(text))


@register.filter
def pretty(value: Any) -> str:
    """A JSON value for reading: indented, ASCII, so that nothing in it can pass for something else."""
    return json.dumps(value, indent=2, default=str)


@register.filter
def short(state: str) -> str:
    """AttemptExecuting -> Executing; StagePartial -> Partial."""
    return str(state).removeprefix("Attempt").removeprefix("Stage").removeprefix("Worker")


@register.inclusion_tag("admin/remora/phase.html")
def phase(name: str) -> dict[str, str]:
    """A badge. An unknown phase, which the database refuses, would be drawn plainly."""
    return {"name": name, "style": name.lower() if name in set(Phase) else ""}
