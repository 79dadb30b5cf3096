"""clean_stages: delete the stages of attempts that lost, at the target, and record that it was done.

Deleting needs no lock: once a stage may go it may go for ever. A stage that cannot be deleted is set aside
for a while, longer each time, and the others go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from jobs import queries, transitions
from jobs.errors import SpecInvalid
from jobs.protocol import Accepted, Fence
from jobs.queries import AttemptFact
from jobs.transitions import StageToClean, areas
from jobs.values import Actor, ActorKind
from workers.handlers import handler_for
from workers.reconciler.swept import Run, Unavailable, duty

ACTOR: Final = Actor(ActorKind.DUTY, "clean_stages")
BUDGET_S: Final = 20.0
BATCH_MAX: Final = 50
ASIDE_S: Final = 10.0
ASIDE_S_MAX: Final = 600.0


class Aside:
    """Stages that could not be deleted, and from when each may be tried again. This process' own memory: a
    hint.
    """

    until: dict[Fence, tuple[float, float]] = {}

    @classmethod
    def skips(cls, fence: Fence) -> bool:
        return fence in cls.until and time.monotonic() < cls.until[fence][0]

    @classmethod
    def put(cls, fence: Fence) -> None:
        if len(cls.until) > 10_000:
            cls.until.clear()
        pause_s = min(2 * cls.until[fence][1], ASIDE_S_MAX) if fence in cls.until else ASIDE_S
        cls.until[fence] = (time.monotonic() + pause_s, pause_s)


@duty("clean_stages")
def clean_stages(run: Run, *, rows_max: int) -> None:
    """CleanupStage for every stage that nothing may rely on any more, and areas of which nothing was
    recorded.
    """
    deadline = time.monotonic() + BUDGET_S
    _page_through(run, queries.stages_to_clean, _clean, rows_max, deadline)
    _page_through(run, areas.unrecorded_areas, _remove_areas, rows_max, deadline)


def _page_through(
    run: Run,
    find: Callable[..., list[AttemptFact]],
    clean: Callable[[Run, list[AttemptFact]], None],
    rows_max: int,
    deadline: float,
) -> None:
    after = None
    while time.monotonic() < deadline:
        page = find(rows_max=rows_max, after=after)
        run.count("seen", len(page))
        for start in range(0, len(page), BATCH_MAX):
            if time.monotonic() > deadline:
                return
            clean(run, [fact for fact in page[start : start + BATCH_MAX] if not Aside.skips(fact.fence)])
        if len(page) < rows_max:
            return
        after = page[-1].attempt_id


@duty("clean_stage")
def clean_stage(run: Run, fence: Fence, *, rows_max: int) -> None:
    """One stage, right after its attempt was over, also if it was cleaned while its process still lived."""
    _clean_fences(run, [fence])
    emptied = areas.emptied_area(fence)
    if emptied is not None:
        _remove_areas(run, [emptied])


def _clean(run: Run, facts: list[AttemptFact]) -> None:
    if run.dry_run:
        run.count("would_clean", len(facts))
    elif facts:
        _clean_fences(run, [fact.fence for fact in facts])


def _remove_areas(run: Run, facts: list[AttemptFact]) -> None:
    """Nothing is staged as far as the durable row knows, so only that the area was deleted is remembered."""
    if run.dry_run:
        run.count("would_remove", len(facts))
        return
    found = [stage for fact in facts if (stage := areas.area_of(fact)) is not None]
    removed = [stage.fence for stage in found if _delete(run, stage)]
    run.act(removed, lambda batch: areas.record_area_removed(batch), "removed")


def _clean_fences(run: Run, fences: list[Fence]) -> None:
    deleted = []
    for answer in transitions.begin_cleanup(fences):
        if not isinstance(answer, Accepted):
            run.count(f"refused_{answer.reason}".lower())
        elif _delete(run, answer.value):
            deleted.append(answer.value.fence)
    run.act(deleted, lambda batch: transitions.cleanup_stage(batch, actor=ACTOR), "cleaned")


def _delete(run: Run, stage: StageToClean) -> bool:
    try:
        handler_for(stage.kind).clean(stage.spec, stage.location)
    except SpecInvalid:
        run.count("kind_not_served")  # left for a worker that knows it
        return False
    except Unavailable:
        raise
    except Exception as error:
        Aside.put(stage.fence)
        run.set_aside(f"{stage.fence.job_id}#{stage.fence.token}", error)
        return False
    Aside.until.pop(stage.fence, None)
    return True
