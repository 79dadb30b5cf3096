"""Retry policy: how long to wait, how many failures and losses are borne. When to act, never whether it is
allowed.

Pure: chance and rows come as arguments. The three numbers: `max_attempts` is the protocol's bound;
`max_failures` is how many retryable failures of the job itself are borne; `max_losses` is how many attempts
in a row may be lost without checkpoint progress.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from jobs.held import HeldJob
from jobs.protocol.states import OutcomeRequest

TEXT_CHARS_MAX: Final = 2_000
RETRY_AFTER_S_MAX: Final = 86_400.0
_DOUBLINGS_MAX: Final = 64


def backoff_s(setbacks: int, base_s: float, cap_s: float, chance: float) -> float:
    """Exponential with full jitter: a chance of the whole range, which doubles with each setback up to the
    cap.
    """
    range_s = min(cap_s, base_s * 2.0 ** min(max(setbacks - 1, 0), _DOUBLINGS_MAX))
    return chance * range_s


def retry_at(job: HeldJob, setbacks: int, chance: float, retry_after_s: float | None = None) -> datetime:
    """When the next attempt may start: after the backoff, and not before the far side wants it."""
    delay_s = backoff_s(setbacks, job.row.backoff_base_s, job.row.backoff_cap_s, chance)
    if retry_after_s is not None:
        delay_s = max(delay_s, min(max(retry_after_s, 0.0), RETRY_AFTER_S_MAX))
    return job.now + timedelta(seconds=delay_s)


def bear_failure(job: HeldJob, outcome: OutcomeRequest, *, drained: bool) -> OutcomeRequest:
    """The outcome that is put to the protocol: once max_failures are borne, the next retryable one is
    permanent.
    """
    if drained or outcome is not OutcomeRequest.RETRYABLE_FAILURE:
        return outcome
    if job.fact("failures") >= job.row.max_failures:
        return OutcomeRequest.PERMANENT_FAILURE
    return outcome


def losses_with(job: HeldJob, token: int) -> int:
    """Losses in a row if `token` is lost now: one more, or none if it left a checkpoint further on than it
    began.
    """
    attempt = job.attempt(token)
    advanced = (
        attempt is not None
        and job.job.checkpoint_valid
        and job.fact("checkpoint_token") == token
        and job.job.checkpoint > attempt.initial_progress
    )
    return 0 if advanced else int(job.fact("losses_in_row")) + 1


def clean_text(text: str, chars_max: int = TEXT_CHARS_MAX) -> str:
    """Text as PostgreSQL can hold it and a person can read it: no NUL, no lone surrogate, not without end."""
    kept = "".join(c if c in "\n\t" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return kept if len(kept) <= chars_max else kept[: chars_max - 3] + "..."
