"""CoordinationStore: one method per coordination action, each one script call per chunk of its batch.

Authority lies elsewhere: everything here is reconstructible and may vanish at any moment. Nothing here
reads PostgreSQL; what an action must know of it, the caller has read and passes as tokens, which the
scripts compare. Every method takes a batch and answers per element, in order; every one is safe to ask
again after an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from jobs.protocol.records import CoordinationRecord
from workers.coordination import arguments, readings
from workers.coordination.connection import Connection
from workers.coordination.facts import (
    Beat,
    Epoch,
    Garbage,
    Grant,
    PermitCounts,
    PresenceSweep,
    ScanPage,
    Snapshot,
    Sweep,
)
from workers.coordination.replies import (
    ActivateReply,
    CleanReply,
    ClearProgressReply,
    DiscardReply,
    EnqueueReply,
    NoticeReply,
    RegrantReply,
    ReleaseLeaseReply,
    ReleaseReservationReply,
    RenewReply,
    ReportReply,
    ReserveReply,
    SweepReply,
)
from workers.coordination.requests import (
    ActivateRequest,
    CleanRequest,
    ClearProgressRequest,
    EnqueueRequest,
    Heartbeat,
    Id,
    NoticeRequest,
    RegrantRequest,
    ReleaseLeaseRequest,
    ReleaseReservationRequest,
    RenewRequest,
    ReportRequest,
    ReserveRequest,
)
from workers.coordination.runner import ScriptRunner


@dataclass(frozen=True, slots=True)
class Timing:
    """How long facts live, on Redis' clock. `sweep_gap_ms`: nobody having swept for longer means that
    nobody could.
    """

    lease_ms: int = 15_000
    renew_ms: int = 5_000
    reservation_ms: int = 10_000
    presence_ms: int = 45_000
    reoffer_ms: int = 5_000
    reoffer_max_ms: int = 60_000
    sweep_gap_ms: int = 15_000


class CoordinationStore:
    """All of Remora's coordination data under one prefix. Safe to share between threads, and to carry over
    a fork.
    """

    def __init__(self, connection: Connection, prefix: str, timing: Timing, batch_max: int = 200) -> None:
        self.timing = timing
        self._runner = ScriptRunner(connection, prefix, batch_max)

    # --- dispatch -----------------------------------------------------------------------------------------

    def enqueue(self, requests: Sequence[EnqueueRequest]) -> list[EnqueueReply]:
        """Enqueue: set the marker. To be called while the job's row lock is held, for a job read as Queued.

        A marker that nobody has taken for `reoffer_ms` (doubled with each offer, up to `reoffer_max_ms`) is
        offered again: of several sweeps that ask at once, one is told REOFFERED.
        """
        timing = {"reoffer_ms": self.timing.reoffer_ms, "reoffer_max_ms": self.timing.reoffer_max_ms}
        answers = self._runner.batch("enqueue", timing, map(arguments.enqueue, requests))
        return [EnqueueReply(answer) for answer in answers.replies]

    def reserve(self, requests: Sequence[ReserveRequest], settle_ms: int = 0) -> list[ReserveReply]:
        """Reserve: take the marker and a permit. A refusal leaves the marker, and notes on it why.

        In an epoch younger than `settle_ms` the answer is SETTLING: free permits are wanted for regrants.
        """
        timing = {"reservation_ms": self.timing.reservation_ms, "settle_ms": settle_ms}
        answers = self._runner.batch("reserve", timing, map(arguments.reserve, requests))
        return [ReserveReply(answer) for answer in answers.replies]

    def activate_attempt(self, requests: Sequence[ActivateRequest]) -> list[Grant[ActivateReply]]:
        """ActivateAttempt: reservation to live lease; an older attempt's leftover lease is retired in the
        same step.
        """
        timing = {"lease_ms": self.timing.lease_ms}
        answers = self._runner.batch("activate_attempt", timing, map(arguments.activate, requests))
        return [Grant(ActivateReply(reply), epoch) for reply, epoch in answers.replies]

    def expire_reservations(self, rows_max: int = 500) -> Sweep:
        """ExpireReservation for every reservation past its deadline, at most `rows_max` of them."""
        return self._sweep("expire_reservations", self.timing.reservation_ms, rows_max)

    def release_reservation(
        self, requests: Sequence[ReleaseReservationRequest]
    ) -> list[ReleaseReservationReply]:
        """ReleaseReservation: give a permit back, if exactly this reservation still holds it."""
        answers = self._runner.batch("release_reservation", {}, map(arguments.release_reservation, requests))
        return [ReleaseReservationReply(answer) for answer in answers.replies]

    # --- leases -------------------------------------------------------------------------------------------

    def renew_lease(self, requests: Sequence[RenewRequest]) -> list[RenewReply]:
        """RenewLease: push the deadline of a lease that is present, even one past its deadline."""
        timing = {"lease_ms": self.timing.lease_ms}
        answers = self._runner.batch("renew_lease", timing, map(arguments.renew, requests))
        return [RenewReply(answer) for answer in answers.replies]

    def heartbeat(self, beats: Sequence[Heartbeat]) -> list[Beat]:
        """RenewLease, then ReportProgress, then the cancel notice, in one round trip per chunk."""
        timing = {"lease_ms": self.timing.lease_ms}
        return readings.beats(self._runner, timing, beats)

    def regrant_lease(self, requests: Sequence[RegrantRequest]) -> list[Grant[RegrantReply]]:
        """RegrantLease: a lost lease (granted in another epoch) is live again, if permits are free.

        To be called while the job's row lock is held, for an attempt read as the Running job's authority:
        otherwise the reaper may revoke it between the read and the grant.
        """
        timing = {"lease_ms": self.timing.lease_ms}
        answers = self._runner.batch("regrant_lease", timing, map(arguments.regrant, requests))
        return [Grant(RegrantReply(reply), epoch) for reply, epoch in answers.replies]

    def expire_leases(self, rows_max: int = 500) -> Sweep:
        """ExpireLease for every lease past its deadline. Nothing else ever takes a lease from its holder.

        After a gap longer than `sweep_gap_ms` in which nobody swept, it removes nothing for one renew period.
        """
        return self._sweep("expire_leases", self.timing.lease_ms, rows_max)

    def release_lease(self, requests: Sequence[ReleaseLeaseRequest]) -> list[ReleaseLeaseReply]:
        """ReleaseLease: give a permit back, if exactly this attempt still holds it."""
        answers = self._runner.batch("release_lease", {}, map(arguments.release_lease, requests))
        return [ReleaseLeaseReply(answer) for answer in answers.replies]

    # --- hints --------------------------------------------------------------------------------------------

    def report_progress(self, requests: Sequence[ReportRequest]) -> list[ReportReply]:
        """ReportProgress: leave a hint, if the reporting attempt's lease is present."""
        answers = self._runner.batch("report_progress", {}, map(arguments.report, requests))
        return [ReportReply(answer) for answer in answers.replies]

    def publish_cancel_notice(self, requests: Sequence[NoticeRequest]) -> list[NoticeReply]:
        """PublishCancelNotice: for a job read as cancel-requested and not terminal."""
        answers = self._runner.batch("publish_cancel_notice", {}, map(arguments.notice, requests))
        return [NoticeReply(answer) for answer in answers.replies]

    def clear_stale_live_progress(self, requests: Sequence[ClearProgressRequest]) -> list[ClearProgressReply]:
        """ClearStaleLiveProgress: drop progress that current authority and a live lease do not back."""
        answers = self._runner.batch("clear_stale_live_progress", {}, map(arguments.clear_progress, requests))
        return [ClearProgressReply(answer) for answer in answers.replies]

    def clean_terminal_coordination(self, requests: Sequence[CleanRequest]) -> list[CleanReply]:
        """CleanTerminalCoordination: nothing of a terminal job stays but leases, which `release_lease` ends.

        For a job that PostgreSQL does not know (looked up after `scan_jobs` named it), pass TOKEN_MAX.
        """
        answers = self._runner.batch("clean_terminal_coordination", {}, map(arguments.clean, requests))
        return [CleanReply(answer) for answer in answers.replies]

    # --- reading ------------------------------------------------------------------------------------------

    def epoch(self) -> Epoch:
        """The current epoch; a new one begins here if the data is found wiped or the server restarted."""
        return self._runner.once("ensure_epoch", {}).epoch

    def snapshot(self, job_ids: Sequence[Id]) -> Snapshot:
        """What is held of each job. Every job asked about is in the answer."""
        return readings.snapshot(self._runner, job_ids)

    def observe(self, job_ids: Sequence[Id]) -> dict[Id, CoordinationRecord]:
        """The protocol's view of the same, for a guard that runs under the row locks."""
        return {job_id: facts.record for job_id, facts in self.snapshot(job_ids).facts.items()}

    def observe_settled(self, job_ids: Sequence[Id]) -> dict[Id, CoordinationRecord]:
        """`observe` for the reaper: a job without a lease is left out while the epoch is younger than a
        lease, because its attempt may be about to be granted its lost lease again.
        """
        snapshot = self.snapshot(job_ids)
        settled = snapshot.epoch.age_ms >= self.timing.lease_ms
        return {job_id: facts.record for job_id, facts in snapshot.facts.items() if settled or facts.lease}

    def scan_jobs(self, cursor: str | None = None, rows_hint: int = 500) -> ScanPage:
        """Job ids that have any fact, so that garbage nobody was told of is found. PostgreSQL is to be read
        *after*.

        About `rows_hint` per page. Also puts right what `index` and `due` say of the permits it passes.
        """
        return readings.scan(self._runner, cursor, rows_hint)

    def discard_garbage(self, garbage: Sequence[Garbage]) -> list[DiscardReply]:
        """Delete fields that no script can read, if they are still so."""
        answers = self._runner.batch("discard_garbage", {}, map(arguments.garbage, garbage))
        return [DiscardReply(answer) for answer in answers.replies]

    def count_permits(
        self, queues: Iterable[str] = (), keys: Iterable[str] = (), incarnations: Iterable[Id] = ()
    ) -> PermitCounts:
        """Permits taken now: in all, and by the queues, concurrency keys and incarnations named."""
        names = [str(one) for one in incarnations]
        return readings.permit_counts(self._runner, list(queues), list(keys), names)

    # --- worker presence ----------------------------------------------------------------------------------

    def renew_presence(self, incarnations: Sequence[Id]) -> None:
        """These incarnations' processes run, for `presence_ms` from now."""
        timing = {"presence_ms": self.timing.presence_ms}
        self._runner.batch("renew_presence", timing, map(arguments.incarnation, incarnations))

    def absent_workers(self, incarnations: Sequence[Id]) -> PresenceSweep:
        """Which of these have let their presence lapse, or have none.

        GRACE, and nobody listed, until presences could have been renewed for a whole `presence_ms`: after a
        wipe, and after a gap in which nobody looked.
        """
        timing = {"presence_ms": self.timing.presence_ms, "gap_ms": self.timing.presence_ms}
        answers = self._runner.batch("list_absent_workers", timing, map(arguments.incarnation, incarnations))
        if not incarnations or "grace" in answers.replies:
            return PresenceSweep(SweepReply.GRACE if incarnations else SweepReply.SWEPT, ())
        listed = zip(incarnations, answers.replies, strict=True)
        return PresenceSweep(SweepReply.SWEPT, tuple(str(one) for one, reply in listed if reply == "absent"))

    def drop_presence(self, incarnations: Sequence[Id]) -> None:
        """These incarnations have ended."""
        self._runner.batch("drop_presence", {}, map(arguments.incarnation, incarnations))

    def _sweep(self, script: str, life_ms: int, rows_max: int) -> Sweep:
        timing: Mapping[str, int] = {
            "life_ms": life_ms,
            "grace_ms": self.timing.renew_ms,
            "gap_ms": max(self.timing.sweep_gap_ms, life_ms),
            "rows_max": rows_max,
        }
        return readings.sweep(self._runner.once(script, timing))
