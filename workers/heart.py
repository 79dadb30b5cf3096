"""The heart of one attempt: renew its lease, report its progress, hear of a cancel, in one round trip to
Redis.

`renew` is called on the Redis lane and `regrant` on the PostgreSQL lane: each says in the supervisor's
words what it came to. Neither decides anything about the attempt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from jobs.errors import DurableStoreUnavailable
from jobs.protocol import Accepted
from jobs.protocol.decision import Refusal
from jobs.transitions.leases import regrant_lease
from workers.coordination.errors import CoordinationUnavailable
from workers.coordination.facts import Beat, Grant
from workers.coordination.replies import RegrantReply, RenewReply
from workers.coordination.requests import Heartbeat as HeartbeatRequest
from workers.coordination.requests import RegrantRequest, RenewRequest, ReportRequest
from workers.coordination.store import CoordinationStore
from workers.envelope import ExecutionEnvelope
from workers.heartbeat import Pulse
from workers.permits import limits_for

NO_PERMIT_PAUSE_S: Final = 0.5
_PULSES: Final = {
    RenewReply.RENEWED: Pulse.RENEWED,
    RenewReply.LEASE_LOST: Pulse.LOST,
    RenewReply.LEASE_EXPIRED: Pulse.OVER,
    RenewReply.SUPERSEDED: Pulse.OVER,
    RegrantReply.REGRANTED: Pulse.RENEWED,
    RegrantReply.ALREADY_LIVE: Pulse.RENEWED,
    RegrantReply.LEASE_EXPIRED: Pulse.OVER,
    RegrantReply.SUPERSEDED: Pulse.OVER,
    RegrantReply.GLOBAL_LIMIT: Pulse.LOST,
    RegrantReply.QUEUE_LIMIT: Pulse.LOST,
    RegrantReply.KEY_LIMIT: Pulse.LOST,
}


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """One answer."""

    pulse: Pulse
    cancel: bool = False
    reply: str = ""
    again_in_s: float = 0.0


SILENCE: Final = Heartbeat(Pulse.SILENT)


@dataclass(slots=True)
class Heart:
    """Knows whose lease it keeps and under which epoch it was granted."""

    coordination: CoordinationStore
    envelope: ExecutionEnvelope
    grant_epoch: str
    report: ReportRequest | None = None
    world_errors: ClassVar = (CoordinationUnavailable, DurableStoreUnavailable)

    def progress(self, progress: int, total: int | None, phase: str) -> None:
        """What the next beat reports."""
        fence = self.envelope.fence
        self.report = ReportRequest(
            str(fence.job_id), fence.token, self.envelope.attempt_id, max(progress, 0), total, phase[:100]
        )

    def renew(self) -> Heartbeat:
        """RenewLease and ReportProgress, and whether a cancel notice is there."""
        fence = self.envelope.fence
        renew = RenewRequest(str(fence.job_id), fence.token, self.envelope.attempt_id, self.grant_epoch)
        (beat,) = self.coordination.heartbeat([HeartbeatRequest(renew, self.report)])
        return self._said(beat)

    def _said(self, beat: Beat) -> Heartbeat:
        return Heartbeat(_PULSES[beat.lease], beat.cancel_notice, beat.lease.value)

    def regrant(self) -> Heartbeat:
        """RegrantLease for a lease that was lost with Redis, if PostgreSQL says that it is still due."""
        fence = self.envelope.fence
        request = RegrantRequest(
            job_id=str(fence.job_id),
            token=fence.token,
            attempt_id=self.envelope.attempt_id,
            incarnation=self.envelope.incarnation,
            grant_epoch=self.grant_epoch,
            queue=self.envelope.queue,
            concurrency_key=self.envelope.concurrency_key,
            limits=limits_for(self.envelope.queue),
        )
        grants: list[Grant[RegrantReply]] = []
        answer = regrant_lease(fence, lambda: grants.extend(self.coordination.regrant_lease([request])))
        if not grants:
            return self._refused(None if isinstance(answer, Accepted) else answer.reason)
        grant = grants[-1]
        if grant.reply.granted:
            self.grant_epoch = grant.epoch
        return Heartbeat(_PULSES[grant.reply], reply=grant.reply.value, again_in_s=NO_PERMIT_PAUSE_S)

    def authority(self) -> Heartbeat:
        """Asked when Redis has been silent for long: OVER once PostgreSQL has given the authority away."""
        answer = regrant_lease(self.envelope.fence, lambda: None)
        return SILENCE if isinstance(answer, Accepted) else self._refused(answer.reason)

    def _refused(self, reason: object) -> Heartbeat:
        if reason is Refusal.NOT_RUNNING:
            # Cancelling: still the authority. The notice may have been lost with the lease.
            return Heartbeat(Pulse.LOST, cancel=True, reply=str(reason), again_in_s=NO_PERMIT_PAUSE_S)
        return Heartbeat(Pulse.OVER, reply=str(reason))
