"""The duties: each compares what the durable store says with what is so elsewhere, and does what is due.

One module per duty, one function per module, all alike: bounded batches, idempotent, safe in several places
at once, `dry_run` only counts, and a `Swept` says what was done. A store that does not answer is reported,
never raised: the duty does what it can without, and the next run finds the same work. When to act is
decided here; whether it is allowed is decided by the protocol, under the row lock. None of them sends
anything: `Swept.offers` is for the caller to send.
"""

from collections.abc import Callable
from typing import Final

from workers.reconciler.cancels import finalize_cancel_of, finalize_cancels
from workers.reconciler.dispatch import offer_waiting, project_dispatch, project_dispatch_of
from workers.reconciler.garbage import collect_garbage
from workers.reconciler.incarnations import watch_incarnations
from workers.reconciler.outcomes import process_outcomes
from workers.reconciler.reaper import reap_lost_attempts
from workers.reconciler.retries import schedule_retries
from workers.reconciler.stages import clean_stage, clean_stages
from workers.reconciler.swept import Swept

DUTIES: Final[dict[str, Callable[..., Swept]]] = {
    "incarnations": watch_incarnations,
    "reaper": reap_lost_attempts,
    "outcomes": process_outcomes,
    "cancels": finalize_cancels,
    "retries": schedule_retries,
    "dispatch": project_dispatch,
    "coordination": collect_garbage,
    "stages": clean_stages,
}
"""By the name that `manage.py reconcile --only` knows, in the order in which one run's work feeds the next.
"""

__all__ = [
    "DUTIES",
    "Swept",
    "clean_stage",
    "clean_stages",
    "collect_garbage",
    "finalize_cancel_of",
    "finalize_cancels",
    "offer_waiting",
    "process_outcomes",
    "project_dispatch",
    "project_dispatch_of",
    "reap_lost_attempts",
    "schedule_retries",
    "watch_incarnations",
]
