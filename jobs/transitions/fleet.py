"""StartIncarnation and CrashWorker: the two ends of a worker incarnation's life."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.ids import IncarnationId, JobId
from jobs.protocol import WorkerRecord
from jobs.values import SYSTEM, Actor, Answer


@dataclass(frozen=True, slots=True)
class IncarnationFacts:
    """What a worker process says of itself when it starts."""

    host: str
    pid: int
    role: str
    queues: tuple[str, ...]
    kinds: tuple[str, ...]
    concurrency: int


def start_incarnation(facts: IncarnationFacts, *, incarnation: IncarnationId | None = None) -> IncarnationId:
    """StartIncarnation: a new id, Up. Given an id that was used before, ProtocolViolation."""
    raise NotImplementedError


def declare_down(
    incarnations: Sequence[IncarnationId], *, why: str, actor: Actor = SYSTEM
) -> list[Answer[WorkerRecord]]:
    """CrashWorker: Down for good, and its attempts over all jobs are known to have stopped, in one transaction.

    Authority stays where it is, for the reaper.
    """
    raise NotImplementedError
