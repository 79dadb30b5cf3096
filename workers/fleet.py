"""Worker incarnations: started, declared down, and what is known of who serves what. The durable store
decides.
"""

from __future__ import annotations

import logging
import os
import random
import socket
import time
from collections.abc import Sequence
from typing import Final

from jobs import queries, transitions
from jobs.errors import DurableStoreUnavailable
from jobs.ids import IncarnationId
from jobs.protocol import WorkerRecord
from jobs.protocol.states import WorkerState
from jobs.transitions import IncarnationFacts
from jobs.values import Actor, ActorKind, Answer
from workers.coordination import CoordinationUnavailable, coordination

log = logging.getLogger(__name__)

JOB_QUEUE_PREFIX: Final = "jobs."
CONTROL_QUEUE: Final = "control"
RETRY_S_MAX: Final = 5.0


def queue_of(job_queue: str) -> str:
    """The Celery queue on which jobs of this queue are offered."""
    return JOB_QUEUE_PREFIX + job_queue


def role_of(queues: Sequence[str]) -> str:
    """Compute runs jobs, control runs duties; a worker may do both."""
    roles = [
        role
        for role, serves in (
            ("compute", any(queue.startswith(JOB_QUEUE_PREFIX) for queue in queues)),
            ("control", CONTROL_QUEUE in queues),
        )
        if serves
    ]
    return "+".join(roles) or "other"


def facts_of_this_process(
    name: str, queues: Sequence[str], kinds: Sequence[str], concurrency: int
) -> IncarnationFacts:
    return IncarnationFacts(
        host=name or socket.gethostname(),
        pid=os.getpid(),
        role=role_of(queues),
        queues=tuple(sorted(queues)),
        kinds=tuple(sorted(kinds)),
        concurrency=concurrency,
    )


def start_incarnation(facts: IncarnationFacts) -> IncarnationId:
    """StartIncarnation, however long PostgreSQL takes to answer: a worker is of no use before it."""
    pause_s = 0.2
    while True:
        try:
            incarnation = transitions.start_incarnation(facts)
        except DurableStoreUnavailable as error:
            log.warning("StartIncarnationAgain", extra={"error": str(error)})
            time.sleep(random.uniform(pause_s / 2, pause_s))
            pause_s = min(pause_s * 2, RETRY_S_MAX)
            continue
        log.info("StartIncarnation", extra={"incarnation": str(incarnation), "role": facts.role})
        return incarnation


def declare_down(incarnation: IncarnationId, why: str, actor: Actor | None = None) -> Answer[WorkerRecord]:
    """CrashWorker: Down for good. Its presence goes too, if Redis can be asked; it lapses anyway."""
    actor = actor or Actor(ActorKind.INCARNATION, str(incarnation))
    (answer,) = transitions.declare_down([incarnation], why=why, actor=actor)
    if answer.accepted:
        log.info("CrashWorker", extra={"incarnation": str(incarnation), "why": why})
    try:
        coordination().drop_presence([incarnation])
    except CoordinationUnavailable:
        log.info("PresenceLeftToLapse", extra={"incarnation": str(incarnation)})
    return answer


def state_of(incarnation: IncarnationId) -> WorkerState:
    """What the durable store says of it."""
    record = queries.worker_records([incarnation]).get(incarnation)
    return WorkerState.UNUSED if record is None else record.state
