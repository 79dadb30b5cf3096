"""The inside of the demo: submits, watches, kills the worker half-way, waits for the end, and checks what is
left.

Run as a program by the stage, with the demo's home and what the source holds; prints its report as one line
of JSON, and shows the timeline on stderr while it happens. The timeline is the job's journal, with what the
journal cannot know in between: the kill, and the lease that lapses in Redis.
"""

import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from remora_site.demo.source import TreeFacts, measure

POLL_S = 0.1
FLEET_S = 90.0
JOB_S = 300.0
CLEAN_S = 90.0
KILL_AT = 0.45  # live progress is a moment old when it is read
NOT_SHOWN = ("AdvanceAttempt", "SendOutcome")  # the step that follows at once says more
COMPUTE_QUEUE = "jobs.default"
COMPUTE_WORKERS = 2


class PlayFailed(Exception):
    """Something did not happen in time."""


@dataclass(slots=True)
class Play:
    """One job from submission to the account."""

    home: Path
    facts: TreeFacts
    console: Console
    timeline: list[dict[str, Any]] = field(default_factory=list)
    report: dict[str, Any] = field(default_factory=dict)
    seen_seq: int = 0
    killed: dict[str, Any] = field(default_factory=dict)
    lapsed: bool = False
    began: datetime | None = None

    def perform(self) -> dict[str, Any]:
        from remora_site.demo import account

        self._fleet_is_up()
        job_id = self._submit()
        with self._bar() as bar:
            task = bar.add_task("", total=self.facts.bytes)
            self._until(lambda: self._step(job_id, bar, task), JOB_S, "the job is over")
        self._until(lambda: self._is_clean(job_id), CLEAN_S, "leftovers are cleaned", must=False)
        self._read_journal(job_id)
        return {
            "job": str(job_id),
            "source": asdict(self.facts),
            "checks": account.checks(self),
            "killed": self.killed,
            "attempts": self.report["attempts"],
            "result": self.report["result"],
            "sent": account.sent(self),
            "timeline": self.timeline,
        }

    # --- steps ----------------------------------------------------------------------------------------------

    def _fleet_is_up(self) -> None:
        from jobs import pages

        self._until(
            lambda: pages.workers_on_queue(COMPUTE_QUEUE) >= COMPUTE_WORKERS,
            FLEET_S,
            "both compute workers have registered",
        )
        self.console.print(f"{COMPUTE_WORKERS} compute workers are up", style="dim")

    def _submit(self) -> Any:
        from jobs import submission
        from jobs.values import Actor, ActorKind
        from workers import handlers

        handlers.kinds()
        spec = {"source": str(self.home / "source"), "target": str(self.home / "target")}
        accepted = submission.submit("transfer", spec, label="demo", actor=Actor(ActorKind.COMMAND, "demo"))
        return accepted.job_id

    def _step(self, job_id: Any, bar: Progress, task: Any) -> bool:
        """Look once: show what is new, kill when it is time; whether the job is over."""
        from jobs.protocol.states import TERMINAL_PHASES
        from workers import reports

        self.report = reports.describe(job_id)
        if self.killed and not self.lapsed and self.report["attempts"][0]["lease"] != "live":
            self.lapsed = True
            self._note("ExpireLease", "the lease of attempt 1 has lapsed: nobody renewed it", 1)
        self._read_journal(job_id)
        done = self._done()
        bar.update(task, completed=done, phase=self.report["phase"], token=self.report["token"])
        if not self.killed and self.report["authority"] == 1 and done >= KILL_AT * self.facts.bytes:
            self._kill(done)
        return self.report["phase"] in TERMINAL_PHASES

    def _done(self) -> int:
        live = self.report["live"]
        kept = self.report["checkpoint"]["progress"] if self.report["checkpoint"]["valid"] else 0
        return max(kept, live["progress"] if live else 0)

    def _kill(self, done: int) -> None:
        """kill -9 to everything in the process group of the worker that runs the attempt."""
        worker = self.report["attempts"][0]["worker"]
        if psutil.Process(worker["pid"]).environ().get("REMORA_HOME") != str(self.home):
            raise PlayFailed(f"process {worker['pid']} is not one of this demo's")
        group = os.getpgid(worker["pid"])
        os.killpg(group, signal.SIGKILL)
        staged = measure(Path(self.report["attempts"][0]["stage_location"])).bytes
        self.killed = {"worker": worker, "group": group, "progress": done, "staged_bytes": staged}
        self._note("kill -9", f"process group {group}, the worker that runs attempt 1", 1)

    def _is_clean(self, job_id: Any) -> bool:
        from remora_site.demo import account
        from workers import reports

        self.report = reports.describe(job_id)
        return account.stage_is_gone(self) and not account.left_in_redis(job_id)

    # --- showing --------------------------------------------------------------------------------------------

    def _read_journal(self, job_id: Any) -> None:
        from jobs import pages
        from remora_site.demo.story import tell

        for event in pages.journal_after(job_id, self.seen_seq):
            self.seen_seq = event.seq
            self.began = self.began or event.at
            self._note(event.action, tell(event, self.report), event.token, at=event.at)

    def _note(self, action: str, text: str, token: int, at: datetime | None = None) -> None:
        from jobs import pages

        moment = at or pages.now()
        at_s = round((moment - (self.began or moment)).total_seconds(), 2)
        self.timeline.append({"at_s": at_s, "action": action, "token": token, "text": text})
        if action in NOT_SHOWN:
            return
        style = {"PersistCheckpoint": "dim", "kill -9": "bold red", "AcceptSuccess": "bold green"}.get(action)
        line = f"{at_s:7.2f} s  {action:<24} {text}"
        self.console.print(line, style=style, markup=False, soft_wrap=True)

    def _bar(self) -> Progress:
        return Progress(
            TextColumn("{task.fields[phase]}, token {task.fields[token]}", markup=False),
            BarColumn(bar_width=None),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            console=self.console,
            transient=True,
            disable=not self.console.is_terminal,
        )

    def _until(self, condition: Callable[[], bool], limit_s: float, what: str, *, must: bool = True) -> None:
        deadline = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > deadline:
                if must:
                    raise PlayFailed(f"Not within {limit_s:.0f} s: {what}.")
                return
            time.sleep(POLL_S)


def main() -> int:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "remora_site.settings")
    import django

    django.setup()
    logging.getLogger().setLevel(logging.ERROR)
    home, facts = Path(sys.argv[1]), TreeFacts(**json.loads(sys.argv[2]))
    console = Console(stderr=True, highlight=False)
    try:
        report = Play(home, facts, console).perform()
    except PlayFailed as failure:
        console.print(str(failure), style="bold red", markup=False)
        return 1
    except KeyboardInterrupt:
        return 130
    sys.stdout.write(json.dumps(report, default=str) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
