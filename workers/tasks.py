"""Celery entry points: parse, call one function, send what follows. They hold no rule.

A message is a hint. It names a job and a token, never a payload; whoever acts checks the token in the
transaction that acts. Offers are sent after the transaction in which they were made; one that is lost is
made again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from celery import shared_task
from django.db import InterfaceError, OperationalError
from kombu.exceptions import OperationalError as BrokerError

from jobs import transitions
from jobs.ids import JobId
from jobs.protocol import Fence
from jobs.transitions import Offer
from workers import reconciler
from workers.celery_worker import RUN_ATTEMPT, slot_of_this_process
from workers.fleet import CONTROL_QUEUE, queue_of
from workers.reconciler import Swept
from workers.runner import run_offer

log = logging.getLogger(__name__)
OFFERS_MAX: Final = 5_000
SPARE_BELOW: Final = 10


@shared_task(name=RUN_ATTEMPT, acks_late=False)
def run_attempt(
    job_id: str,
    expected_token: int,
    spec_digest: str,
    kind: str,
    queue: str,
    concurrency_key: str = "",
    priority: int = 0,
) -> None:
    """One offer: this slot takes it up or leaves it."""
    slot = slot_of_this_process()
    offer = Offer(UUID(job_id), expected_token, kind, queue, priority, concurrency_key, spec_digest)
    ran = run_offer(slot, offer)
    if ran.token:
        follow_up(str(ran.job_id), ran.token, stage=ran.leaves_a_stage, dispatch=ran.may_want_dispatch)
    slot.end_if_told()


def follow_up(job_id: str, token: int, *, stage: bool, dispatch: bool) -> None:
    """What an attempt's end makes due at once. The duties find the same work if this is lost."""
    if dispatch:
        offer_now([UUID(job_id)])
    if stage:
        _send(clean_stage, job_id, token)
    send_offers(reconciler.offer_waiting().offers)


def offer_now(job_ids: Sequence[JobId]) -> None:
    """Project these jobs and send their offers: a hint, which may fail when a store is away and harms
    nobody.
    """
    try:
        send_offers(reconciler.project_dispatch_of(job_ids).offers)
    except (OperationalError, InterfaceError) as error:
        log.warning("OffersLeftToDuty", extra={"error": type(error).__name__})


def on_job_accepted(sender: Any, job_ids: Sequence[JobId], **_: Any) -> None:
    """jobs.signals.job_accepted: the submission's fast path."""
    offer_now(list(job_ids))


def send_offers(offers: Sequence[Offer]) -> None:
    """Publish them on one connection. Those that are not published have a marker, and are offered again.

    A queue that holds many offers already gets no more: busy workers must not make it grow for ever.
    """
    _publish(offers, depth_max=OFFERS_MAX)


def _publish(offers: Sequence[Offer], depth_max: int) -> None:
    if not offers:
        return
    try:
        with run_attempt.app.producer_pool.acquire(block=True, timeout=5) as producer:
            room = {
                queue: depth_max - _depth(producer.channel, queue)
                for queue in {queue_of(offer.queue) for offer in offers}
            }
            for offer in offers:
                queue = queue_of(offer.queue)
                room[queue] -= 1
                if room[queue] >= 0:
                    run_attempt.apply_async(
                        args=_arguments(offer),
                        queue=queue,
                        priority=_broker_priority(offer.priority),
                        producer=producer,
                    )
    except (BrokerError, OSError) as error:
        log.warning("OffersNotSent", extra={"offers": len(offers), "error": type(error).__name__})


def _depth(channel: Any, queue: str) -> int:
    """How many messages wait there, of all priorities."""
    return int(channel.queue_declare(queue=queue).message_count)


def _arguments(offer: Offer) -> tuple[Any, ...]:
    return (
        str(offer.job_id),
        offer.expected_token,
        offer.spec_digest,
        offer.kind,
        offer.queue,
        offer.concurrency_key,
        offer.priority,
    )


def _broker_priority(priority: int) -> int:
    """Redis' steps are few, and 0 is the first served."""
    return 0 if priority > 0 else 3 if priority == 0 else 6


def _send(task: Any, *args: Any) -> None:
    try:
        task.apply_async(args=args, queue=CONTROL_QUEUE)
    except (BrokerError, OSError) as error:
        log.info("HintNotSent", extra={"task": task.name, "error": type(error).__name__})


def _report(swept: Swept) -> dict[str, Any]:
    send_offers(swept.offers)
    _publish(swept.spare_offers, depth_max=SPARE_BELOW)
    return swept.as_dict()


# --- side effects of one attempt: each carries the token and verifies it where it acts --------------------


@shared_task(name="workers.settle")
def settle(job_id: str, token: int) -> None:
    """ProcessOutcome of that attempt's pending outcome."""
    transitions.process_outcome([Fence(UUID(job_id), token)])


@shared_task(name="workers.clean_stage")
def clean_stage(job_id: str, token: int) -> dict[str, Any]:
    """CleanupStage of that attempt."""
    return _report(reconciler.clean_stage(Fence(UUID(job_id), token)))


@shared_task(name="workers.finalize_cancel")
def finalize_cancel(job_id: str, token: int) -> dict[str, Any]:
    """Tell the worker of that attempt, and FinalizeCancel if nothing is left to wait for."""
    return _report(reconciler.finalize_cancel_of(Fence(UUID(job_id), token)))


# --- duties -----------------------------------------------------------------------------------------------


@shared_task(name="workers.project_dispatch")
def project_dispatch() -> dict[str, Any]:
    return _report(reconciler.project_dispatch())


@shared_task(name="workers.reap_lost_attempts")
def reap_lost_attempts() -> dict[str, Any]:
    return _report(reconciler.reap_lost_attempts())


@shared_task(name="workers.schedule_retries")
def schedule_retries() -> dict[str, Any]:
    return _report(reconciler.schedule_retries())


@shared_task(name="workers.finalize_cancels")
def finalize_cancels() -> dict[str, Any]:
    report = _report(reconciler.finalize_cancels())
    _report(reconciler.process_outcomes())
    return report


@shared_task(name="workers.collect_garbage")
def collect_garbage() -> dict[str, Any]:
    return _report(reconciler.collect_garbage())


@shared_task(name="workers.clean_stages")
def clean_stages() -> dict[str, Any]:
    return _report(reconciler.clean_stages())


@shared_task(name="workers.watch_incarnations")
def watch_incarnations() -> dict[str, Any]:
    return _report(reconciler.watch_incarnations())
