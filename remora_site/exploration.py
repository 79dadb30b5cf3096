"""The whole protocol to explore: jobs and credential intents, which know nothing of each other, in one
state.
"""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter
from typing import Any

from credentials import exploration as credentials
from jobs.protocol.bounds import Bounds
from jobs.protocol.explorer import Exploration, Watch, explore
from jobs.protocol.explorer_trace import Told, trace
from jobs.protocol.liveness import Starved, check_liveness, properties

Report = dict[str, Any]


def explore_all(
    bounds: Bounds, *, watch: Watch | None = None, states_max: int | None = None, stop_at_first: bool = True
) -> tuple[Exploration, float]:
    """Explore the protocol within bounds; also how many seconds that took."""
    began = perf_counter()
    intents = None
    if bounds.credential_intents:
        intents = credentials.CredentialIntents(bounds.job_ids, bounds.credential_intents)
    found = explore(bounds, intents, watch=watch, states_max=states_max, stop_at_first=stop_at_first)
    return found, perf_counter() - began


def report(found: Exploration, seconds: float) -> Report:
    """What was found, for `--json`: keys and meanings are part of the interface."""
    return {
        "distinct": found.distinct,
        "depth": found.depth,
        "transitions": found.transitions,
        "violations": [
            {"property": violation.property, "trace": _steps(trace(found, violation))}
            for violation in found.violations
        ],
        "deadlocks": found.deadlocks,
        "seconds": round(seconds, 3),
        "complete": found.complete,
        "quiescent": found.quiescent,
    }


def check_liveness_all(found: Exploration, into: Report) -> list[Starved]:
    """The liveness properties that fail under all of the module's fairness, added to the report.

    Each comes with a run: its trace, and the round that may be repeated for ever after.
    """
    began = perf_counter()
    failed = check_liveness(found, credentials.FAIRNESS)
    into["violations"] += [
        {"property": str(run.about), "trace": _steps(run.way), "round": _steps(run.round)} for run in failed
    ]
    into["liveness"] = {
        "checked": [str(leads_to.about) for leads_to in properties(found.world)],
        "seconds": round(perf_counter() - began, 3),
    }
    return failed


def _steps(steps: Iterable[Told]) -> list[dict[str, Any]]:
    return [step.as_dict() for step in steps]
