"""What the durable store's guards see of Redis: read under the row locks, by the durable store's own call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jobs.ids import JobId
from jobs.protocol import CoordinationRecord
from workers.coordination import coordination


def observe(job_ids: Sequence[JobId]) -> Mapping[JobId, CoordinationRecord]:
    """What is held of each job now."""
    seen = coordination().observe(job_ids)
    return {job_id: seen[job_id] for job_id in job_ids}


def observe_settled(job_ids: Sequence[JobId]) -> Mapping[JobId, CoordinationRecord]:
    """The same for the reaper: in a young epoch a job without a lease is left out, and so declined."""
    seen = coordination().observe_settled(job_ids)
    return {job_id: seen[job_id] for job_id in job_ids if job_id in seen}
