"""Errors of the durable store that its callers are meant to tell apart.

A refusal is a value (jobs.values.Answer), never one of these. A violation is a defect: nothing catches it. A
fence unwinds the attempt that it hits, and only the runner catches it.
"""

from __future__ import annotations

from typing import Any


class RemoraError(Exception):
    """Base of every error that Remora raises on purpose."""


class SpecInvalid(RemoraError):
    """A job spec that is refused at submission: names the field, and says what is allowed."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(field, message)
        self.field = field
        self.message = message

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class SubmissionInvalid(SpecInvalid):
    """Something beside the spec is wrong with a submission: its key, queue, priority or retry policy."""


class SubmissionConflict(RemoraError):
    """The idempotency key already names a job with a different body."""

    def __init__(self, key: str, job_id: Any) -> None:
        super().__init__(key, job_id)
        self.key = key
        self.job_id = job_id

    def __str__(self) -> str:
        return f"the key {self.key!r} already names job {self.job_id}, whose body is another"


class NoSuchJob(RemoraError):
    """There is no job of that id."""

    def __init__(self, job_id: Any) -> None:
        super().__init__(job_id)
        self.job_id = job_id

    def __str__(self) -> str:
        return f"there is no job {self.job_id}"


class ProtocolViolation(RemoraError):
    """An invariant does not hold, or a row changed under its lock: a defect, to be seen and never handled."""


class ProtocolBypassed(ProtocolViolation):
    """Something tried to write a row of the durable store past the store."""

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self.model = model

    def __str__(self) -> str:
        return f"{self.model} rows are written by jobs.transitions and jobs.submission only"


class DurableStoreUnavailable(RemoraError):
    """PostgreSQL did not answer within the tries of one call. Ask again: nothing is done twice."""


class AttemptFenced(BaseException):
    """This attempt may no longer act. A BaseException, so that job code does not swallow it."""

    def __init__(self, fence: Any, reason: Any) -> None:
        super().__init__(fence, reason)
        self.fence = fence
        self.reason = reason

    def __str__(self) -> str:
        return f"attempt {self.fence.token} of job {self.fence.job_id} is fenced: {self.reason}"
