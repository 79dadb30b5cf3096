"""A real fleet for tests: Celery workers and a beat as child processes, each in a process group of its own.

Leases and periods are short here, so that recovery is seen within seconds. Every process is killed at the
end, with all that it started, whatever the test did.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection

from jobs import submission
from jobs.models import Attempt, Job
from jobs.protocol.states import AttemptState, Phase
from tests.waiting import wait_until
from workers.host import processes

PROJECT = Path(__file__).resolve().parents[2]
LEASE_S = 3.0
TIMES = {
    "REMORA_LEASE_MS": "3000",
    "REMORA_RENEW_MS": "700",
    "REMORA_RESERVATION_MS": "3000",
    "REMORA_PRESENCE_MS": "4000",
    "REMORA_REAPER_S": "1",
    "REMORA_RETRY_S": "1",
    "REMORA_DISPATCH_S": "1",
    "REMORA_GC_S": "1",
    "REMORA_STAGE_S": "1",
    "REMORA_WATCHDOG_S": "1",
    "REMORA_REOFFER_S": "1",
    "REMORA_REOFFER_MAX_S": "2",
    "REMORA_STOP_GRACE_S": "2",
    "REMORA_DRAIN_S": "1",
    "REMORA_BACKOFF_BASE_S": "1",
    "REMORA_REDIS_TIMEOUT_MS": "500",
    "REMORA_PROBE": "1",
}
TERMINAL = (Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED)


@dataclass(slots=True)
class Member:
    """One process of the fleet. Its process id is its group's."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill_group(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait(10)

    def lines(self, message: str = "") -> list[dict[str, Any]]:
        """Its log lines, those with that message."""
        found = []
        for line in self.log.read_text(errors="replace").splitlines():
            with suppress(json.JSONDecodeError):
                entry = json.loads(line)
                if isinstance(entry, dict) and (not message or entry.get("message") == message):
                    found.append(entry)
        return found

    def children(self) -> list[int]:
        """Its pool children: the slots' supervisors."""
        return processes.children_of(self.pid)

    def hosts(self) -> list[int]:
        return [host for child in self.children() for host in processes.children_of(child)]


@dataclass(slots=True)
class Fleet:
    """Starts and ends processes against this test run's database and key prefix."""

    home: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    members: dict[str, Member] = field(default_factory=dict)

    def worker(self, name: str, queues: str = "jobs.default", concurrency: int = 1, **extra: str) -> Member:
        member = self._start(
            name,
            extra,
            *("worker", "--hostname", f"{name}@%h", "--queues", queues),
            *("--concurrency", str(concurrency), "--without-gossip", "--without-mingle"),
        )
        wait_until(lambda: _says_ready(member), 60, f"{name} is ready; see {member.log}")
        return member

    def control(self) -> Member:
        return self.worker("control", "control")

    def beat(self, name: str = "beat") -> Member:
        return self._start(name, {}, "beat", "--pidfile", "")

    def _start(self, name: str, extra: Mapping[str, str], *arguments: str) -> Member:
        log = self.home / f"{name}-{len(list(self.home.glob('*.log')))}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "celery", "--app", "remora_site", "--quiet", *arguments],
                cwd=PROJECT,
                env={**os.environ, **database_environment(), **TIMES, **self.environment, **extra},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.members[name] = Member(name, process, log)
        return self.members[name]

    def stop(self) -> None:
        for member in self.members.values():
            member.kill_group()

    # --- jobs ---------------------------------------------------------------------------------------------

    def submit(self, *steps: Mapping[str, Any], time_limit_s: float = 0, **options: Any) -> UUID:
        """A probe that takes these steps. Its target is the fleet's own."""
        spec = {"target": str(self.home / "target"), "steps": list(steps), "time_limit_s": time_limit_s}
        return submission.submit("probe", spec, **options).job_id

    def wait_for(self, job_id: UUID, *phases: Phase, timeout_s: float = 60) -> Job:
        def there() -> bool:
            return Job.objects.get(id=job_id).phase in (phases or TERMINAL)

        wait_until(there, timeout_s, f"job {job_id} is {phases or 'terminal'}: {describe(job_id)}")
        return Job.objects.get(id=job_id)

    def wait_executing(self, job_id: UUID, token: int = 1, timeout_s: float = 60) -> Attempt:
        attempts = Attempt.objects.filter(job_id=job_id, token=token)
        executing = attempts.filter(state=AttemptState.EXECUTING)
        wait_until(executing.exists, timeout_s, f"attempt {token} executes: {describe(job_id)}")
        return attempts.get()

    def member_running(self, attempt: Attempt) -> Member:
        pid = attempt.worker.pid
        (member,) = [member for member in self.members.values() if member.pid == pid]
        return member

    def supervisor_of(self, attempt: Attempt) -> int:
        """The pool child that watches this attempt: the one that said so last."""
        member = self.member_running(attempt)
        (entry,) = [
            entry
            for entry in member.lines("ActivateAttempt")
            if entry["job"] == str(attempt.job_id) and entry["token"] == attempt.token
        ]
        return int(entry["pid"])

    def host_of(self, attempt: Attempt) -> int:
        (host,) = processes.children_of(self.supervisor_of(attempt))
        return host


def describe(job_id: UUID) -> str:
    job = Job.objects.get(id=job_id)
    attempts = job.attempts.order_by("token").values_list("token", "state", "outcome", "why")
    return f"{job.phase} token {job.current_token} {job.why!r} {list(attempts)}"


def database_environment() -> dict[str, str]:
    server, _, _ = settings.REMORA_DATABASE_URL.rpartition("/")
    return {"DATABASE_URL": f"{server}/{connection.settings_dict['NAME']}"}


def _says_ready(member: Member) -> bool:
    if member.process.poll() is not None:
        raise AssertionError(f"{member.name} ended: {member.log.read_text(errors='replace')[-2000:]}")
    return f'"{member.name}@' in member.log.read_text(errors="replace") and "ready." in member.log.read_text(
        errors="replace"
    )
