"""Follows one job until it is over: the loop of `watch` and `submit --wait`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from jobs.ids import JobId
from jobs.protocol.states import TERMINAL_PHASES, Phase
from workers import reports
from workers.management import drawing
from workers.management.console import Exit

POLL_S: Final = 0.25

Report = dict[str, Any]
Say = Callable[[str], None]


def follow(job_id: JobId, say: Say, *, quiet: bool) -> Report:
    """Watch the job to its end and return its last report. `quiet`: no bar, as for a program."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        return _follow(job_id, _Lines(say, quiet))
    with _Bar(console) as bar:
        return _follow(job_id, bar)


def exit_of(phase: str) -> Exit:
    return Exit.OK if phase == Phase.SUCCEEDED else Exit.NO


class _Lines:
    """One line each time the phase, the token or what it waits for changes."""

    def __init__(self, say: Say, quiet: bool) -> None:
        self._say = say
        self._quiet = quiet
        self._last = ""

    def update(self, report: Report) -> None:
        line = headline(report)
        if line != self._last and not self._quiet:
            self._say(line)
        self._last = line


class _Bar:
    """A live bar, with each change of phase or token left above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.fields[phase]}"),
            BarColumn(bar_width=None),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            TextColumn("token {task.fields[token]} {task.fields[step]}", style="dim", markup=False),
            console=console,
            transient=True,
        )
        self._task: TaskID | None = None
        self._last = ""

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def update(self, report: Report) -> None:
        line = headline(report)
        if line != self._last:
            self._console.print(line, markup=False, highlight=False)
            self._last = line
        live = report["live"]
        done = live["progress"] if live else report["checkpoint"]["progress"]
        total = live["total"] if live else None
        if report["phase"] == Phase.SUCCEEDED:
            done = total = report["result"]["bytes"]
        shown = {
            "phase": drawing.phase(report["phase"]).markup,
            "token": report["token"],
            "step": live["phase"] if live else "",
        }
        if self._task is None:
            self._task = self._progress.add_task("", total=total, completed=done, **shown)
        else:
            self._progress.update(self._task, total=total, completed=done, **shown)


def headline(report: Report) -> str:
    """Phase, token, and why it is not running or how it ended, in one line."""
    parts = [report["phase"]]
    if report["token"]:
        parts.append(f"token {report['token']}")
    waiting = report["waiting"]
    if waiting:
        parts.append(waiting["text"])
    elif report["why"] and report["phase"] != Phase.SUCCEEDED:
        parts.append(report["why"])
    return ", ".join(parts)


def _follow(job_id: JobId, shown: _Lines | _Bar) -> Report:
    while True:
        report = reports.describe(job_id)
        shown.update(report)
        if report["phase"] in TERMINAL_PHASES:
            return report
        time.sleep(POLL_S)
