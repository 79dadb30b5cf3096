"""Where Celery's worker and Remora's meet: signals of the worker's life, and the ear on its consumer. No
rules.

Imported by workers.tasks in every process that loads tasks; only a worker's processes send these signals.
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any, Final

from celery import bootsteps
from celery.signals import (
    celeryd_after_setup,
    task_postrun,
    task_prerun,
    worker_init,
    worker_process_init,
    worker_shutdown,
    worker_shutting_down,
)

from workers.incarnation import Incarnation
from workers.settlement import Closed
from workers.slot import Seated, Slot

RUN_ATTEMPT: Final = "workers.run_attempt"


class _Process:
    """What this process is: a worker's main process has an incarnation, its pool children also a seat in
    it.
    """

    incarnation: Incarnation | None = None
    seat: Slot | Seated | None = None


def slot_of_this_process() -> Slot:
    """The slot, in a pool child of a worker that serves job queues."""
    if not isinstance(_Process.seat, Slot):
        raise RuntimeError("jobs run only on a worker of a jobs.* queue, under Celery's prefork pool")
    return _Process.seat


@worker_init.connect(weak=False)
def listen(sender: Any, **_: Any) -> None:
    """Before Celery assembles the consumer: give it an ear."""
    sender.app.steps["consumer"].add(EarStep)


@celeryd_after_setup.connect(weak=False)
def start(sender: str, instance: Any, **_: Any) -> None:
    """Before the pool forks: this process becomes an incarnation."""
    queues = list(instance.app.amqp.queues.consume_from)
    _Process.incarnation = Incarnation(sender, queues, instance.concurrency, _follow_up)
    _Process.incarnation.start_watching()


def _follow_up(job_id: str, token: int, closed: Closed) -> None:
    from workers import tasks  # it imports this module

    dispatch = closed in (Closed.DRAINED, Closed.RETRYABLE_FAILURE)
    tasks.follow_up(job_id, token, stage=closed is not Closed.COMMITTED, dispatch=dispatch)


@worker_process_init.connect(weak=False)
def start_slot(**_: Any) -> None:
    """In each pool child, after the fork."""
    if _Process.incarnation is not None:
        _Process.seat = _Process.incarnation.in_pool_child()
        if isinstance(_Process.seat, Slot):
            signal.signal(signal.SIGTERM, _on_term)


def _on_term(number: int, frame: FrameType | None) -> None:
    slot_of_this_process().told_to_end()


@task_prerun.connect(weak=False)
def begin_duty(task: Any, **_: Any) -> None:
    """A worker whose processes are all busy does not poll, and is not deaf."""
    if _Process.seat is not None and task.name != RUN_ATTEMPT:
        _Process.seat.holds(step="duty")


@task_postrun.connect(weak=False)
def end_duty(task: Any, **_: Any) -> None:
    if _Process.seat is not None and task.name != RUN_ATTEMPT:
        _Process.seat.holds()


@worker_shutting_down.connect(weak=False)
def drain(**_: Any) -> None:
    """SIGTERM or SIGINT, each time; in the main process' signal handler."""
    if _Process.incarnation is not None:
        _Process.incarnation.drain()


@worker_shutdown.connect(weak=False)
def end(**_: Any) -> None:
    """The pool has stopped."""
    if _Process.incarnation is not None:
        _Process.incarnation.ended()


class EarStep(bootsteps.StartStopStep):
    """Notes each answer to the consumer's poll, so that a worker that polls no more is noticed.

    A healthy consumer is answered at least once a second, also when there is no message.
    """

    requires = ("celery.worker.consumer:Tasks",)

    def start(self, consumer: Any) -> None:
        incarnation = _Process.incarnation
        channel = getattr(consumer.task_consumer, "channel", None)
        handlers = getattr(channel, "handlers", None)
        if incarnation is None or not handlers or "BRPOP" not in handlers:
            return
        read = handlers["BRPOP"]
        incarnation.hearing.attach()

        def read_and_note(**options: Any) -> Any:
            # Noted before: a message that was received is raised or returned through here, too.
            incarnation.hearing.heard()
            return read(**options)

        handlers["BRPOP"] = read_and_note
