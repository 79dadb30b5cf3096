"""What a handler is, and what the runtime promises it: the whole contract between the two.

Lives here: the `Handler` protocol, the `AttemptContext` protocol, and the values that pass between them.
May not live here: any implementation. `workers/context.py` implements `AttemptContext`; `workers/handlers/*`
implement `Handler`. Neither imports the other, so a new kind of job never touches the runtime.

Three promises hold between them:

* A handler writes only below `ctx.staging`, which belongs to one attempt alone. A zombie may go on writing
  there; nothing it writes is believed, because only the manifest named by the returned `ManifestDescriptor`
  can be committed, and only by the attempt that holds authority.
* A checkpoint names only what the target already holds durably. The handler syncs first, then calls
  `ctx.persist_checkpoint`; the runtime records members, proof and progress in one transaction.
* Progress counts bytes staged. The runtime adds one unit when `run` returns (the sealed manifest), so that
  `StageComplete` means progress == max_progress even for an empty tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from jobs.protocol.records import Fence
    from jobs.protocol.states import OutcomeRequest

JsonMapping: TypeAlias = Mapping[str, Any]


class MemberKind(StrEnum):
    """What a sealed member is. Nothing else is ever staged."""

    FILE = "file"
    DIR = "dir"
    SYMLINK = "symlink"


@dataclass(frozen=True, slots=True)
class SealedMember:
    """One member of a stage that will never change again.

    `path` is relative to the user's tree, as the bytes the file system has; `sha256` is of the content
    (of the link text for a symbolic link, empty for a directory).
    """

    path: bytes
    kind: MemberKind
    size: int
    sha256: str
    mode: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """The valid checkpoint this attempt was authorised to start from.

    `members` is a stream, ordered bytewise by path, and may be read once: a checkpoint can name a million
    members.
    """

    progress: int
    proof: JsonMapping
    attempt_token: int
    staging: str
    members: Iterator[SealedMember]


@dataclass(frozen=True, slots=True)
class ManifestDescriptor:
    """The result: what AcceptSuccess commits. The manifest is the result, not the directory it lies in."""

    digest: str
    size: int
    members: int
    bytes: int
    location: str


@dataclass(frozen=True, slots=True)
class Disposition:
    """How a failure is put to the protocol: `outcome` is one of its two failure outcomes.

    `retry_after_s` is a wish of the far side (for example Retry-After); the retry scheduler may wait longer.
    """

    outcome: OutcomeRequest
    reason: str
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """One way in which a stored result is not what its manifest says. `path` is escaped for people."""

    path: str
    what: str


class StopReason(StrEnum):
    """Why an attempt is asked to stop."""

    CANCEL = "cancel"
    DRAIN = "drain"
    TIME_LIMIT = "time_limit"
    LEASE_LOST = "lease_lost"


class StopRequested(BaseException):
    """Raised by `AttemptContext.check`. The handler stops writing and lets it pass on to the runtime."""

    def __init__(self, reason: StopReason) -> None:
        super().__init__(reason.value)
        self.reason = reason

    @property
    def may_checkpoint(self) -> bool:
        """Whether the attempt still holds authority, so that a last checkpoint saves work."""
        return self.reason in (StopReason.DRAIN, StopReason.TIME_LIMIT)


class AttemptContext(Protocol):
    """What a running handler may do. Every method checks the fence; only the thread of `run` may call
    them.
    """

    @property
    def fence(self) -> Fence: ...

    @property
    def attempt_id(self) -> str: ...

    @property
    def spec(self) -> JsonMapping: ...

    @property
    def staging(self) -> str:
        """This attempt's own area, as `Handler.area` named it."""

    @property
    def resume(self) -> ResumePoint | None: ...

    def check(self) -> None:
        """Raise StopRequested or AttemptFenced (both BaseException) if the attempt must stop. Cheap."""

    def advance(self, progress: int, total: int | None, phase: str) -> None:
        """Say how far the stage is. A hint for people; the runtime throttles it."""

    def persist_checkpoint(self, progress: int, proof: JsonMapping, members: Sequence[SealedMember]) -> None:
        """Record durably `progress`, `proof`, and `members`: those sealed since the last call.

        AttemptFenced if refused. After `invalidate_checkpoint` progress starts over, from zero.
        """

    def invalidate_checkpoint(self, why: str) -> None:
        """The checkpoint's proof does not hold: no later attempt may start from it.

        Members that this attempt recorded so far are forgotten with it. Harmless when there is no checkpoint.
        """

    def count_sent(self, nbytes: int) -> None:
        """Account for bytes really read from the source, so that what was sent twice can be told."""


FetchProgress: TypeAlias = Callable[[int, int], None]


@runtime_checkable
class Handler(Protocol):
    """One kind of job. Handlers hold no state between calls: one object serves every attempt of a process."""

    @property
    def kind(self) -> str: ...

    def validate(self, spec: JsonMapping) -> JsonMapping:
        """Return the spec in its normal form, or raise jobs.errors.SpecInvalid(field, message)."""

    def area(self, spec: JsonMapping, fence: Fence) -> str:
        """Where the attempt stages. A pure function, so the area can be cleaned though nobody recorded it."""

    def run(self, ctx: AttemptContext) -> ManifestDescriptor:
        """Stage everything, seal the manifest, describe it."""

    def classify(self, exc: BaseException) -> Disposition:
        """Map any exception that left `run` to an outcome. Never raises; its reason names no secret."""

    def clean(self, spec: JsonMapping, area: str) -> None:
        """Remove exactly that area. Idempotent; also right when the area was never made."""

    def verify(self, descriptor: ManifestDescriptor) -> Iterator[Problem]:
        """Yield every way in which the stored result differs from its manifest."""

    def fetch(self, descriptor: ManifestDescriptor, dest: str, progress: FetchProgress) -> None:
        """Copy the result's members to `dest`, calling `progress(bytes_done, bytes_total)`."""
