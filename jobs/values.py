"""Values that cross the durable store's border: who acts, what an attempt ended as, what a result is.

Frozen, and free of Django: the edges build them, the store keeps them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, TypeAlias, TypeVar

from jobs.ids import JobId
from jobs.protocol.decision import Accepted, Refused
from jobs.protocol.records import CoordinationRecord

V = TypeVar("V")


class ActorKind(StrEnum):
    """Who took a step."""

    INCARNATION = "incarnation"
    USER = "user"
    DUTY = "duty"
    COMMAND = "command"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class Actor:
    """Who took a step, as the journal keeps it. For an incarnation, `id` is the incarnation's id."""

    kind: ActorKind
    id: str = ""


SYSTEM = Actor(ActorKind.SYSTEM)


class AttemptEnd(StrEnum):
    """How an attempt ended, for people. The protocol knows only its state."""

    COMMITTED = "committed"
    RETRYABLE_FAILURE = "retryable_failure"
    PERMANENT_FAILURE = "permanent_failure"
    DRAINED = "drained"
    LOST = "lost"
    CANCELLED = "cancelled"
    REJECTED = "rejected"


class Unasked(StrEnum):
    """Why the store declined before the protocol was asked."""

    NO_SUCH_JOB = "NO_SUCH_JOB"
    NO_SUCH_ATTEMPT = "NO_SUCH_ATTEMPT"
    NO_SUCH_WORKER = "NO_SUCH_WORKER"
    LOCKED_BY_ANOTHER = "LOCKED_BY_ANOTHER"
    UNEXPECTED_TOKEN = "UNEXPECTED_TOKEN"  # noqa: S105
    SPEC_DIGEST_DIFFERS = "SPEC_DIGEST_DIFFERS"
    KIND_NOT_SERVED = "KIND_NOT_SERVED"
    NOT_DUE = "NOT_DUE"
    STAGE_STILL_NEEDED = "STAGE_STILL_NEEDED"
    NOT_OBSERVED = "NOT_OBSERVED"


@dataclass(frozen=True, slots=True)
class Declined:
    """The request does not fit the row it names; nothing changed."""

    reason: Unasked
    accepted: ClassVar[bool] = False
    refused: ClassVar[bool] = True


Answer: TypeAlias = Accepted[V] | Refused | Declined
"""What a transition answers per request, in order: `.accepted`, `.refused`, and `.value` or `.reason`."""

Observe: TypeAlias = Callable[[Sequence[JobId]], Mapping[JobId, CoordinationRecord]]
"""Reads the CoordinationStore. Called once, after the row locks are held. A job missing from the answer could
not be
observed, and is declined with NOT_OBSERVED."""


@dataclass(frozen=True, slots=True)
class Result:
    """The manifest that an attempt asks to have committed."""

    manifest_digest: str
    manifest_size: int
    members: int
    bytes: int
    location: str


@dataclass(frozen=True, slots=True)
class Member:
    """A sealed member, as the ledger keeps it. `kind` is file, dir or symlink; `path` is relative, in raw
    bytes.
    """

    path: bytes
    kind: str
    size: int
    sha256: str
    mode: int
    mtime_ns: int
