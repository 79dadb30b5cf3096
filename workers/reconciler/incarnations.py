"""watch_incarnations: a worker whose presence lapsed and that holds no permit is declared Down, for good."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from django.db.models.functions import Now

from jobs import transitions
from jobs.ids import IncarnationId
from jobs.models import WorkerIncarnation
from jobs.protocol.states import WorkerState
from jobs.values import Actor, ActorKind
from workers.coordination import coordination
from workers.coordination.replies import SweepReply
from workers.reconciler.swept import Run, duty

log = logging.getLogger(__name__)
ACTOR: Final = Actor(ActorKind.DUTY, "watch_incarnations")
PAGES_MAX: Final = 100
WHY: Final = "its presence lapsed and it holds no permit"


@duty("watch_incarnations")
def watch_incarnations(run: Run, *, rows_max: int) -> None:
    """CrashWorker for those that are gone. A worker that lives after all starts anew as another
    incarnation.
    """
    after = None
    for _ in range(PAGES_MAX):
        known = _old_enough(coordination().timing.presence_ms, rows_max, after)
        run.count("seen", len(known))
        if not known or not _watch(run, known) or len(known) < rows_max:
            return
        after = known[-1]


def _watch(run: Run, known: Sequence[IncarnationId]) -> bool:
    """Whether the next page is worth a look: in a grace nobody's absence says anything."""
    store = coordination()
    sweep = store.absent_workers(known)
    if sweep.reply is SweepReply.GRACE:
        run.count("grace")
        return False
    absent = set(sweep.absent)
    gone = _without_permits([one for one in known if str(one) in absent])
    run.act(gone, lambda batch: transitions.declare_down(batch, why=WHY, actor=ACTOR), "declared_down")
    if gone and not run.dry_run:
        store.drop_presence(gone)
    return True


def _old_enough(presence_ms: int, rows_max: int, after: IncarnationId | None) -> list[IncarnationId]:
    """One that has just started may not have been seen yet. Oldest first: those are the likely ones."""
    started = Now() - timedelta(milliseconds=presence_ms)
    rows = WorkerIncarnation.objects.filter(state=WorkerState.UP, started_at__lt=started)
    if after is not None:
        rows = rows.filter(id__gt=after)
    return list(rows.order_by("id").values_list("id", flat=True)[:rows_max])


def _without_permits(incarnations: Sequence[IncarnationId]) -> list[IncarnationId]:
    """Its main process may be dead while a supervisor of it works on: that one keeps its lease."""
    if not incarnations:
        return []
    counts = coordination().count_permits(incarnations=incarnations)
    held = {**counts.reserved_by_incarnation}
    for incarnation, leases in counts.leased_by_incarnation.items():
        held[incarnation] = held.get(incarnation, 0) + leases
    return [one for one in incarnations if not held.get(str(one))]
