"""finalize_cancels: tell the workers, and forbid publication for good once nothing is left to wait for.

FinalizeCancel is always allowed while the job is Cancelling. When it is done is policy: as soon as the
attempt has stopped or holds no lease, and after the grace of a stop in any case, whether or not Redis
answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from django.conf import settings
from django.db.models.functions import Now

from jobs import queries, transitions
from jobs.ids import JobId
from jobs.models import Attempt, Job
from jobs.protocol import Fence
from jobs.protocol.states import AttemptState, Phase
from jobs.queries import RunningFact
from jobs.store import job_of
from jobs.values import Actor, ActorKind
from workers.coordination import CoordinationUnavailable, coordination
from workers.coordination.requests import NoticeRequest
from workers.reconciler.swept import Run, duty

ACTOR: Final = Actor(ActorKind.DUTY, "finalize_cancels")
PAGES_MAX: Final = 20


@duty("finalize_cancels")
def finalize_cancels(run: Run, *, rows_max: int) -> None:
    """PublishCancelNotice and FinalizeCancel for every job that is Cancelling."""
    after = None
    for _ in range(PAGES_MAX):
        page = queries.cancelling(rows_max=rows_max, after=after)
        run.count("seen", len(page))
        if page:
            _finalize(run, page)
        if len(page) < rows_max:
            return
        after = _job_id(page[-1])


@duty("finalize_cancel")
def finalize_cancel_of(run: Run, fence: Fence, *, rows_max: int) -> None:
    """The same for one attempt. A Cancelling job keeps its authority until it is Cancelled, so the token
    read stays.
    """
    attempt = (
        Attempt.objects.select_related("job")
        .filter(
            job_id=job_of(fence), token=fence.token, job__phase=Phase.CANCELLING, job__authority=fence.token
        )
        .first()
    )
    if attempt is None:
        run.count("not_cancelling")
        return
    state, queue, key = AttemptState(attempt.state), attempt.job.queue, attempt.job.concurrency_key
    fact = RunningFact(fence, attempt.id, attempt.worker_id, state, queue, key, attempt.authorized_at)
    _finalize(run, [fact])


def publish_notices(run: Run, page: Sequence[RunningFact]) -> None:
    """Tell the workers. Stable: a Cancelling job is cancel-requested until it is terminal."""
    replies = coordination().publish_cancel_notice(
        [NoticeRequest(str(fact.fence.job_id), fact.fence.token) for fact in page]
    )
    for reply in replies:
        run.count(reply.value)


def _finalize(run: Run, page: Sequence[RunningFact]) -> None:
    try:
        if not run.dry_run:
            publish_notices(run, page)
        idle = _without_a_running_attempt(page)
    except CoordinationUnavailable as error:
        run.unavailable(error)
        idle = {_job_id(fact) for fact in page if fact.state is AttemptState.STOPPED}
    due = idle | _long_cancelling([_job_id(fact) for fact in page])
    run.act(sorted(due), lambda batch: transitions.finalize_cancel(batch, actor=ACTOR), "finalized")


def _without_a_running_attempt(page: Sequence[RunningFact]) -> set[JobId]:
    store = coordination()
    snapshot = store.snapshot([_job_id(fact) for fact in page])
    settled = snapshot.epoch.age_ms >= store.timing.lease_ms
    idle = set()
    for fact in page:
        facts = snapshot.facts[_job_id(fact)]
        leased = facts.lease is not None and facts.lease.token == fact.fence.token
        gone = settled and not leased and facts.reservation is None
        if fact.state is AttemptState.STOPPED or gone:
            idle.add(_job_id(fact))
    return idle


def _long_cancelling(job_ids: Sequence[JobId]) -> set[JobId]:
    """Nothing changes a job while it is Cancelling, so its last change is the request. PostgreSQL's clock."""
    grace = timedelta(seconds=2 * settings.REMORA_STOP_GRACE_S)
    rows = Job.objects.filter(id__in=job_ids, phase=Phase.CANCELLING, updated_at__lt=Now() - grace)
    return set(rows.values_list("id", flat=True))


def _job_id(fact: RunningFact) -> JobId:
    return job_of(fact.fence)
