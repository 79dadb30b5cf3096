"""The runtime's AttemptContext: what a handler may do, inside the attempt host. Every method checks the
fence.

Checkpoints go straight to PostgreSQL on this process' own connection; progress goes to the supervisor,
which relays it. Nothing here knows Redis: whether the lease lives is the supervisor's business, and it ends
this process if it does not.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

from jobs import queries, transitions
from jobs.errors import AttemptFenced, DurableStoreUnavailable
from jobs.protocol import Accepted, Fence
from jobs.store import job_of
from jobs.values import Actor, ActorKind, Answer, Member
from workers.envelope import ExecutionEnvelope
from workers.failpoints import failpoint
from workers.handlers.api import JsonMapping, MemberKind, ResumePoint, SealedMember, StopReason, StopRequested
from workers.host.lines import Line, LineClosed

T = TypeVar("T")
SAY_EVERY_S: Final = 0.2
RETRY_S_MAX: Final = 2.0


class StopOrder:
    """What the supervisor has said, as the thread that hears it leaves it for the one that works."""

    def __init__(self) -> None:
        self._reason: StopReason | None = None
        self._given = threading.Event()

    def give(self, reason: StopReason) -> None:
        # A cancel overrules a drain, which may still checkpoint; nothing overrules a cancel or a lost lease.
        if self._reason in (None, StopReason.DRAIN, StopReason.TIME_LIMIT):
            self._reason = reason
        self._given.set()

    @property
    def reason(self) -> StopReason | None:
        return self._reason

    def wait(self, timeout_s: float) -> None:
        self._given.wait(timeout_s)


class RunningAttempt:
    """One attempt's context. Implements workers.handlers.api.AttemptContext."""

    def __init__(self, envelope: ExecutionEnvelope, line: Line, order: StopOrder) -> None:
        self._envelope = envelope
        self._line = line
        self._order = order
        self._actor = Actor(ActorKind.INCARNATION, str(envelope.incarnation))
        self._said_at = 0.0
        self._said: tuple[int, int | None, str] = (0, None, "")
        self.bytes_sent = 0

    @property
    def fence(self) -> Fence:
        return self._envelope.fence

    @property
    def attempt_id(self) -> str:
        return str(self._envelope.attempt_id)

    @property
    def spec(self) -> JsonMapping:
        return self._envelope.spec

    @property
    def staging(self) -> str:
        return self._envelope.staging

    @property
    def resume(self) -> ResumePoint | None:
        earlier = self._envelope.resume
        if earlier is None:
            return None
        return ResumePoint(
            progress=earlier.progress,
            proof=earlier.proof,
            attempt_token=earlier.token,
            staging=earlier.staging,
            members=_sealed(queries.staged_members(earlier.attempt_id)),
        )

    def check(self) -> None:
        if (reason := self._order.reason) is not None:
            raise StopRequested(reason)

    def advance(self, progress: int, total: int | None, phase: str) -> None:
        self.check()
        self._said = (progress, total, phase)
        now = time.monotonic()
        if now - self._said_at >= SAY_EVERY_S:
            self._said_at = now
            self.say_progress()

    def say_progress(self) -> None:
        """Tell the supervisor; if it is gone, so will this process be in a moment."""
        progress, total, phase = self._said
        try:
            self._line.send(
                {
                    "say": "progress",
                    "progress": progress,
                    "total": total,
                    "phase": phase,
                    "sent": self.bytes_sent,
                }
            )
        except LineClosed:
            raise AttemptFenced(self.fence, "the supervisor is gone") from None

    def persist_checkpoint(self, progress: int, proof: JsonMapping, members: Sequence[SealedMember]) -> None:
        request = transitions.CheckpointRequest(
            fence=self.fence,
            progress=progress,
            proof=proof,
            members=[_member(member) for member in members],
            bytes_sent=self.bytes_sent,
        )
        failpoint("checkpoint.before", self.fence.job_id)
        self._durably(lambda: transitions.persist_checkpoint([request], actor=self._actor))
        failpoint("checkpoint.after", self.fence.job_id)

    def invalidate_checkpoint(self, why: str) -> None:
        request = transitions.InvalidateRequest(job_of(self.fence), why, self.fence.token)
        self._durably(lambda: transitions.invalidate_checkpoint([request], actor=self._actor))

    def count_sent(self, nbytes: int) -> None:
        self.bytes_sent += nbytes

    def _durably(self, act: Callable[[], list[Answer[Any]]]) -> None:
        """Keep asking while PostgreSQL is away: the supervisor keeps the lease, and says stop if it cannot.

        A drain does not break this off, since it is what the checkpoint is wanted for.
        """
        pause_s = 0.1
        while True:
            self._check_may_write()
            try:
                (answer,) = act()
            except DurableStoreUnavailable:
                self._order.wait(random.uniform(pause_s / 2, pause_s))
                pause_s = min(pause_s * 2, RETRY_S_MAX)
                continue
            if not isinstance(answer, Accepted):
                raise AttemptFenced(self.fence, answer.reason)
            return

    def _check_may_write(self) -> None:
        reason = self._order.reason
        if reason is not None and not StopRequested(reason).may_checkpoint:
            raise StopRequested(reason)


def _member(sealed: SealedMember) -> Member:
    return Member(
        path=sealed.path,
        kind=sealed.kind.value,
        size=sealed.size,
        sha256=sealed.sha256,
        mode=sealed.mode,
        mtime_ns=sealed.mtime_ns,
    )


def _sealed(members: Iterator[Member]) -> Iterator[SealedMember]:
    for member in members:
        yield SealedMember(
            path=bytes(member.path),
            kind=MemberKind(member.kind),
            size=member.size,
            sha256=member.sha256,
            mode=member.mode,
            mtime_ns=member.mtime_ns,
        )
