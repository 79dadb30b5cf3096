"""What an audit compares beside the journal of jobs: areas at POSIX targets, and credential intents.

An area is judged only where this machine sees its target: one that is not there may be on another node.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final
from uuid import UUID

from credentials.audit import audit_intents
from jobs import audit
from jobs.models import Attempt, CommittedResult

ROWS_PER_PAGE: Final = 1_000
_FIRST: Final = UUID(int=0)


def register() -> None:
    """Have `manage.py audit` look at these too."""
    audit.register_ledger_check("areas cleaned", areas_not_cleaned)
    audit.register_ledger_check("results there", results_not_there)
    audit.register_ledger_check("credential intents", broken_intents)


def areas_not_cleaned() -> Iterator[str]:
    """Areas that are recorded as deleted and are there."""
    after = _FIRST
    while True:
        cleaned = Attempt.objects.filter(id__gt=after, stage_cleaned_at__isnull=False).order_by("id")
        page = list(cleaned.values_list("id", "job_id", "token", "stage_location")[:ROWS_PER_PAGE])
        for attempt_id, job_id, token, area in page:
            after = attempt_id
            if os.path.isabs(area) and os.path.lexists(area):
                yield f"the area of attempt {token} of job {job_id} was deleted and is there"
        if len(page) < ROWS_PER_PAGE:
            return


def results_not_there() -> Iterator[str]:
    """Committed results whose manifest is gone from a target that is there."""
    after = _FIRST
    while True:
        committed = CommittedResult.objects.filter(job_id__gt=after).order_by("job_id")
        page = list(committed.values_list("job_id", "location", "attempt__stage_location")[:ROWS_PER_PAGE])
        for job_id, location, area in page:
            after = job_id
            target = os.path.dirname(os.path.dirname(os.path.normpath(area)))
            if os.path.isabs(location) and os.path.isdir(target) and not os.path.lexists(location):
                yield f"the result of job {job_id} is not there"
        if len(page) < ROWS_PER_PAGE:
            return


def broken_intents() -> Iterator[str]:
    for broken in audit_intents():
        where = f"step {broken.seq} {broken.action}" if broken.seq else "stored row"
        yield f"intent {broken.intent_id}, {where}: {broken.problem}"
