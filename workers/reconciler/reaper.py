"""reap_lost_attempts: revoke the authority of attempts whose lease is gone.

In this order: lapsed leases and reservations are expired (by Redis' clock), then what is there is looked
at, then each candidate is looked at again under its row lock. If Redis cannot be reached nothing is done:
an outage of Redis must not kill healthy attempts. In an epoch younger than a lease an absent lease proves
nothing, because its holder may be about to be granted it again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from jobs import queries, transitions
from jobs.protocol import Fence
from jobs.protocol.states import AttemptState
from jobs.queries import RunningFact
from jobs.store import job_of
from jobs.values import Actor, ActorKind
from workers.coordination import coordination
from workers.coordination.facts import CoordinationFacts, Sweep
from workers.coordination.replies import SweepReply
from workers.observing import observe_settled
from workers.reconciler.swept import Run, duty

ACTOR: Final = Actor(ActorKind.DUTY, "reap_lost_attempts")
PAGES_MAX: Final = 100


@duty("reap_lost_attempts")
def reap_lost_attempts(run: Run, *, rows_max: int) -> None:
    """Expire, look, and reap."""
    store = coordination()
    if not run.dry_run:
        _expire(run, "leases_expired", store.expire_leases, rows_max)
        _expire(run, "reservations_expired", store.expire_reservations, rows_max)
    if store.epoch().age_ms < store.timing.lease_ms:
        run.count("epoch_too_young")
        return
    after = None
    for _ in range(PAGES_MAX):
        page = queries.running(rows_max=rows_max, after=after)
        run.count("seen", len(page))
        _reap(run, _without_lease(page))
        if len(page) < rows_max:
            return
        after = job_of(page[-1].fence)


def _expire(run: Run, name: str, sweep: Callable[[int], Sweep], rows_max: int) -> None:
    for _ in range(PAGES_MAX):
        swept = sweep(rows_max)
        if swept.reply is SweepReply.GRACE:
            run.count("grace")
        run.count(name, len(swept.lapsed))
        if not swept.more:
            return


def _without_lease(page: Sequence[RunningFact]) -> list[Fence]:
    if not page:
        return []
    facts = coordination().snapshot([job_of(fact.fence) for fact in page]).facts
    return [fact.fence for fact in page if _looks_lost(fact, facts[job_of(fact.fence)])]


def _looks_lost(fact: RunningFact, facts: CoordinationFacts) -> bool:
    if facts.lease is not None and facts.lease.token == fact.fence.token:
        return False
    return not (fact.state is AttemptState.AUTHORIZED and facts.reservation is not None)


def _reap(run: Run, fences: Sequence[Fence]) -> None:
    run.act(
        fences,
        lambda batch: transitions.reap_lost_attempt(batch, observe=observe_settled, actor=ACTOR),
        "reaped",
    )
