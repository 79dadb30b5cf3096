"""project_dispatch: the outbox. Every Queued job has a marker in Redis, and an offer that somebody will
take up.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from jobs import queries, transitions
from jobs.ids import JobId
from jobs.transitions import Offer
from workers.coordination import coordination
from workers.coordination.facts import CoordinationFacts
from workers.coordination.replies import EnqueueReply, ReserveReply
from workers.coordination.requests import EnqueueRequest
from workers.failpoints import failpoint
from workers.reconciler.swept import Run, duty

BUDGET_S: Final = 5.0
LOOK_ROWS: Final = 20
SPARE_MAX: Final = 100
_LIMITS: Final = (
    ReserveReply.GLOBAL_LIMIT,
    ReserveReply.QUEUE_LIMIT,
    ReserveReply.KEY_LIMIT,
    ReserveReply.LOCAL_LIMIT,
)
_OFFERED: Final = (EnqueueReply.ENQUEUED, EnqueueReply.REOFFERED)


class Place:
    """Where the last run of this process stopped for lack of time, so that a long queue is gone through in
    turns.

    Only a hint: a process that starts at the front again finds the same work.
    """

    after: tuple[int, JobId] | None = None


@duty("project_dispatch")
def project_dispatch(run: Run, *, rows_max: int) -> None:
    """Enqueue what has no marker, and offer again what nobody took."""
    deadline = time.monotonic() + BUDGET_S
    while time.monotonic() < deadline:
        page = queries.awaiting_dispatch(rows_max=rows_max, after=Place.after)
        Place.after = (page[-1].priority, page[-1].job_id) if len(page) == rows_max else None
        _project(run, page)
        if Place.after is None:
            return


@duty("project_dispatch")
def project_dispatch_of(run: Run, job_ids: Sequence[JobId], *, rows_max: int) -> None:
    """The same for these jobs, right after they became Queued."""
    for start in range(0, len(job_ids), rows_max):
        offer(run, job_ids[start : start + rows_max])


@duty("offer_waiting")
def offer_waiting(run: Run, *, rows_max: int) -> None:
    """A permit was given back: offer it to the first job that was refused one.

    Its marker is set already; only the message is due, so nothing is written and no lock is needed.
    """
    page = queries.awaiting_dispatch(rows_max=min(rows_max, LOOK_ROWS))
    facts = coordination().snapshot([offer.job_id for offer in page]).facts if page else {}
    for offer_ in page:
        marker, reserved = facts[offer_.job_id].marker, facts[offer_.job_id].reservation
        if marker is not None and reserved is None and marker.refused in _LIMITS:
            run.offers.append(offer_)
            return


def _project(run: Run, page: Sequence[Offer]) -> None:
    """Look first, without a lock: most jobs that wait have a marker already and only wait for a permit."""
    run.count("seen", len(page))
    facts = coordination().snapshot([offer.job_id for offer in page]).facts
    if len(run.spare_offers) < SPARE_MAX:
        waiting = [offer_ for offer_ in page if _was_offered(facts[offer_.job_id])]
        run.spare_offers.extend(waiting[: SPARE_MAX - len(run.spare_offers)])
    due = [offer.job_id for offer in page if _is_due(offer, facts[offer.job_id])]
    if run.dry_run:
        run.count("would_offer", len(due))
    else:
        offer(run, due)


def _was_offered(facts: CoordinationFacts) -> bool:
    """Long enough ago that its message may be lost, or was never sent because the queue was full."""
    marker = facts.marker
    old = marker is not None and marker.offered_age_ms >= coordination().timing.reoffer_ms
    return old and facts.reservation is None


def _is_due(offer: Offer, facts: CoordinationFacts) -> bool:
    if facts.reservation is not None:
        return False
    marker = facts.marker
    if marker is None or marker.expected_token != offer.expected_token:
        return True
    return marker.offered_age_ms >= coordination().timing.reoffer_ms


def offer(run: Run, job_ids: Sequence[JobId]) -> None:
    """Enqueue under the row locks; the offers are sent by whoever ran the duty."""
    offers = transitions.enqueue(job_ids, lambda wanted: _set_markers(run, wanted))
    run.offers.extend(offers)


def _set_markers(run: Run, offers: list[Offer]) -> list[bool]:
    """The script, called while the rows are locked."""
    requests = [
        EnqueueRequest(str(offer.job_id), offer.expected_token, offer.queue, offer.priority)
        for offer in offers
    ]
    for offer_ in offers:
        failpoint("enqueue.before", offer_.job_id)
    replies = coordination().enqueue(requests)
    for offer_ in offers:
        failpoint("enqueue.after", offer_.job_id)
    for reply in replies:
        run.count(reply.value)
    return [reply in _OFFERED for reply in replies]
