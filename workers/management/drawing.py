"""How facts look in a terminal: phases, tables of facts and of attempts. Values in, renderables out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from jobs.protocol.states import Phase
from workers.display import clock, size
from workers.files.names import show_name

PHASE_STYLES: Final[Mapping[str, str]] = {
    Phase.QUEUED: "cyan",
    Phase.RUNNING: "bold blue",
    Phase.RETRY_WAIT: "yellow",
    Phase.CANCELLING: "magenta",
    Phase.SUCCEEDED: "bold green",
    Phase.FAILED: "bold red",
    Phase.CANCELLED: "magenta",
}


def phase(name: str) -> Text:
    return Text(name, style=PHASE_STYLES.get(name, ""))


def facts(rows: Mapping[str, Any]) -> Table:
    """Names and values, one a line; what is empty is left out."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in rows.items():
        if value not in (None, ""):
            table.add_row(name, value if isinstance(value, Text) else Text(show_name(str(value))))
    return table


def attempts(rows: list[dict[str, Any]]) -> Table:
    table = Table(
        "token", "state", "worker", "began", "ended", "resumed from", "progress", box=None, pad_edge=False
    )
    table.add_column("outcome", overflow="fold")
    for row in rows:
        worker = f"{row['worker']['host']}:{row['worker']['pid']}"
        table.add_row(
            str(row["token"]),
            Text(row["state"].removeprefix("Attempt")),
            Text(show_name(worker)),
            clock(row["started"]),
            clock(row["ended"]),
            size(row["resumed_from_bytes"]) if row["resumed_from_bytes"] else "the beginning",
            size(row["progress"]),
            Text(show_name(": ".join(part for part in (row["outcome"], row["note"] or row["why"]) if part))),
        )
    return table
