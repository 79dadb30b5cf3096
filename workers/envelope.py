"""The execution envelope: everything an attempt runs under, checked before anything is activated.

Made from the durable store's grant, and compared with the offer and with this process. It travels to the
attempt host as one message; it holds no secret.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID

from jobs.ids import AttemptId, IncarnationId
from jobs.protocol import Fence
from jobs.transitions import Grant, Offer


class EnvelopeFault(StrEnum):
    """What of an envelope does not fit. A closed set: each is a defect or an old message, none is retried."""

    OTHER_JOB = "OTHER_JOB"
    OTHER_TOKEN = "OTHER_TOKEN"  # noqa: S105
    OTHER_SPEC = "OTHER_SPEC"
    OTHER_KIND = "OTHER_KIND"
    OTHER_INCARNATION = "OTHER_INCARNATION"
    KIND_NOT_SERVED = "KIND_NOT_SERVED"
    BEYOND_BUDGET = "BEYOND_BUDGET"
    NO_STAGE = "NO_STAGE"


@dataclass(frozen=True, slots=True)
class ResumeEnvelope:
    """The checkpoint that the attempt starts from."""

    progress: int
    proof: Mapping[str, Any]
    token: int
    attempt_id: AttemptId
    staging: str


@dataclass(frozen=True, slots=True)
class ExecutionEnvelope:
    """One attempt: whose, of what, where it stages, from where it resumes, how long it may take."""

    fence: Fence
    attempt_id: AttemptId
    incarnation: IncarnationId
    kind: str
    spec: Mapping[str, Any]
    spec_digest: str
    queue: str
    concurrency_key: str
    staging: str
    initial_progress: int
    max_attempts: int
    resume: ResumeEnvelope | None = None
    time_limit_s: float | None = None

    @classmethod
    def of(cls, grant: Grant, time_limit_s: float | None = None) -> ExecutionEnvelope:
        earlier = grant.resume
        return cls(
            fence=grant.fence,
            attempt_id=grant.attempt_id,
            incarnation=grant.worker,
            kind=grant.kind,
            spec=grant.spec,
            spec_digest=grant.spec_digest,
            queue=grant.queue,
            concurrency_key=grant.concurrency_key,
            staging=grant.stage_location,
            initial_progress=grant.initial_progress,
            max_attempts=grant.max_attempts,
            resume=None
            if earlier is None
            else ResumeEnvelope(
                earlier.progress, earlier.proof, earlier.token, earlier.attempt_id, earlier.stage_location
            ),
            time_limit_s=time_limit_s,
        )

    def fault(self, offer: Offer, incarnation: IncarnationId, kinds: Collection[str]) -> EnvelopeFault | None:
        """Validate: the first thing that does not fit, None if all does."""
        if self.fence.job_id != offer.job_id:
            return EnvelopeFault.OTHER_JOB
        if self.fence.token != offer.expected_token:
            return EnvelopeFault.OTHER_TOKEN
        if self.spec_digest != offer.spec_digest:
            return EnvelopeFault.OTHER_SPEC
        if self.kind != offer.kind:
            return EnvelopeFault.OTHER_KIND
        if self.incarnation != incarnation:
            return EnvelopeFault.OTHER_INCARNATION
        if self.kind not in kinds:
            return EnvelopeFault.KIND_NOT_SERVED
        if not 1 <= self.fence.token <= self.max_attempts:
            return EnvelopeFault.BEYOND_BUDGET
        if not self.staging:
            return EnvelopeFault.NO_STAGE
        return None

    def as_message(self) -> dict[str, Any]:
        """As it travels to the attempt host."""
        earlier = self.resume
        return {
            "job_id": str(self.fence.job_id),
            "token": self.fence.token,
            "attempt_id": str(self.attempt_id),
            "incarnation": str(self.incarnation),
            "kind": self.kind,
            "spec": dict(self.spec),
            "spec_digest": self.spec_digest,
            "queue": self.queue,
            "concurrency_key": self.concurrency_key,
            "staging": self.staging,
            "initial_progress": self.initial_progress,
            "max_attempts": self.max_attempts,
            "time_limit_s": self.time_limit_s,
            "resume": None
            if earlier is None
            else {
                "progress": earlier.progress,
                "proof": dict(earlier.proof),
                "token": earlier.token,
                "attempt_id": str(earlier.attempt_id),
                "staging": earlier.staging,
            },
        }

    @classmethod
    def from_message(cls, message: Mapping[str, Any]) -> ExecutionEnvelope:
        told = {name: message[name] for name in cls.__dataclass_fields__ if name in message}
        earlier = message["resume"]
        if earlier is not None:
            earlier = ResumeEnvelope(**{**earlier, "attempt_id": UUID(earlier["attempt_id"])})
        return cls(
            **{
                **told,
                "fence": Fence(UUID(message["job_id"]), message["token"]),
                "attempt_id": UUID(message["attempt_id"]),
                "incarnation": UUID(message["incarnation"]),
                "resume": earlier,
            }
        )
