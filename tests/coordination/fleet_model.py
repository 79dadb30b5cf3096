"""A fleet whose durable half is the model and whose coordination half is Redis: each step taken in both and
compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import jobs.protocol as pure
from jobs.protocol.decision import Accepted, Decision
from jobs.protocol.faults import lose_coordination_state
from jobs.protocol.records import JobView, LeaseRecord, Usage, WorkerRecord
from jobs.protocol.states import AttemptState, LeaseState, OutcomeRequest
from tests.coordination.fleet_steps import JOBS, LIMITS, PERMITS, TICK_MS, TOKENS, Step
from tests.coordination.support import QUEUE, Data, record_in_ticks
from workers.coordination import requests as ask
from workers.coordination.replies import RegrantReply, RenewReply
from workers.coordination.store import CoordinationStore


class FleetModel:
    """Three jobs and two slots for worker incarnations."""

    def __init__(self, store: CoordinationStore, data: Data) -> None:
        self.store, self.data = store, data
        self.views = {job: JobView() for job in JOBS}
        self.round = dict.fromkeys(JOBS, 0)  # how many jobs have had this name
        self.workers: dict[str, WorkerRecord] = {}
        self.slots = [self._incarnation(), self._incarnation()]
        self.grants: dict[str, str] = {}  # attempt -> epoch of its grant
        self.told_expired: set[str] = set()
        self.taken: list[str] = []

    # --- steps --------------------------------------------------------------------------------------------

    def steps(self) -> list[Step]:
        """Every step that could be tried now, most of them refused."""
        return [step for job in JOBS for step in self._steps_of(job) if step.callable]

    def take(self, step: Step) -> None:
        """The step in both, and the answers compared."""
        if step.said is not None:
            reply = step.said()
            assert (reply == step.accepting) is step.decision.accepted, (step.name, reply, step.decision)
        if isinstance(step.decision, Accepted):
            self.views[step.job] = step.decision.value
            self.taken.append(step.name)

    def _steps_of(self, job: str) -> Iterator[Step]:
        view, token, worker = self._current(job)
        for slot in (0, 1):
            yield self._reserve(job, self.workers[self.slots[slot]])
        yield from self._dispatch(job, view, token, worker)
        if self._attempt(job, token) in self.grants:
            yield self._renew(job, view, token, worker)
            yield from self._regrant(job, view, token, worker)
        for one in TOKENS:
            lease = ask.ReleaseLeaseRequest(job, one, self._attempt(job, one))
            released = pure.release_lease(view, one)
            yield Step("release_lease", job, released, partial(self._say_release, lease), "released")
        yield from self._hints(job, view, token, worker)
        yield from self._durable(job, view, token, worker)

    def _say_release(self, lease: ask.ReleaseLeaseRequest) -> str:
        return self.store.release_lease([lease])[0]

    def _dispatch(self, job: str, view: JobView, token: int, worker: WorkerRecord) -> Iterator[Step]:
        store = self.store
        offer = ask.EnqueueRequest(job, token + 1, QUEUE)
        yield Step("enqueue", job, pure.enqueue(view), lambda: store.enqueue([offer])[0], "enqueued")
        held = view.coordination.reservation
        if held is not None:
            reserved = store.snapshot([job]).facts[job].reservation
            assert reserved is not None
            back = ask.ReleaseReservationRequest(job, reserved.expected_token, held, reserved.claim)
            decision = pure.release_reservation(view, self.workers[held])
            yield Step(
                "release_reservation", job, decision, lambda: store.release_reservation([back])[0], "released"
            )
        if token:
            decision = pure.activate_attempt(view, token, worker)
            yield Step(
                "activate", job, decision, lambda: self._say_activate(job, view, token, worker), "activated"
            )

    def _say_activate(self, job: str, view: JobView, token: int, worker: WorkerRecord) -> str:
        attempt, claim = self._attempt(job, token), f"{worker.id} {token}"
        record = view.attempt(token)
        progress = record.progress if record else 0
        [grant] = self.store.activate_attempt(
            [ask.ActivateRequest(job, token, attempt, worker.id, claim, progress)]
        )
        self.grants[attempt] = grant.epoch
        return grant.reply

    def _reserve(self, job: str, worker: WorkerRecord) -> Step:
        token = self.views[job].job.current_token + 1
        request = ask.ReserveRequest(
            job, token, worker.id, f"{worker.id} {token}", QUEUE, "", PERMITS, self._executing(worker.id)
        )
        decision = pure.reserve(self.views[job], worker, self.usage(worker.id), LIMITS)
        return Step("reserve", job, decision, lambda: self.store.reserve([request])[0], "reserved")

    def _renew(self, job: str, view: JobView, token: int, worker: WorkerRecord) -> Step:
        attempt = self._attempt(job, token)
        request = ask.RenewRequest(job, token, attempt, self.grants[attempt])

        def said() -> str:
            [reply] = self.store.renew_lease([request])
            lease = view.coordination.lease(token)
            if lease is not None and lease.state is LeaseState.LOST:
                assert reply is RenewReply.LEASE_LOST
            if reply is RenewReply.LEASE_EXPIRED:
                self.told_expired.add(attempt)
            return reply

        return Step("renew", job, pure.renew_lease(view, token, worker), said, "renewed")

    def _regrant(self, job: str, view: JobView, token: int, worker: WorkerRecord) -> Iterator[Step]:
        attempt, lease = self._attempt(job, token), view.coordination.lease(token)
        if lease is None or attempt in self.told_expired:
            return  # whoever was told that it expired does not ask
        if lease.state is LeaseState.EXPIRED and self.grants[attempt] != self.store.epoch().value:
            return  # lapsed, then wiped before its holder asked: nobody can tell (docs/coordination.md)
        request = ask.RegrantRequest(job, token, attempt, worker.id, self.grants[attempt], QUEUE, "", PERMITS)

        def said() -> str:
            [grant] = self.store.regrant_lease([request])
            if grant.reply is RegrantReply.REGRANTED:
                self.grants[attempt] = grant.epoch
            return grant.reply

        decision = pure.regrant_lease(view, token, worker, self.usage(worker.id), LIMITS)
        yield Step("regrant", job, decision, said, "regranted")

    def _hints(self, job: str, view: JobView, token: int, worker: WorkerRecord) -> Iterator[Step]:
        store, record = self.store, view.attempt(token)
        if record is not None:
            report = ask.ReportRequest(job, token, self._attempt(job, token), record.progress)
            decision = pure.report_progress(view, token, worker)
            yield Step("report", job, decision, lambda: store.report_progress([report])[0], "reported")
        notice = ask.NoticeRequest(job, token)
        noticed = pure.publish_cancel_notice(view)
        yield Step("notice", job, noticed, lambda: store.publish_cancel_notice([notice])[0], "published")
        stale = ask.ClearProgressRequest(job, token, view.job.authority)
        cleared = pure.clear_stale_live_progress(view)
        yield Step("clear", job, cleared, lambda: store.clear_stale_live_progress([stale])[0], "cleared")
        over = ask.CleanRequest(job, token)
        cleaned = pure.clean_terminal_coordination(view)
        yield Step("clean", job, cleaned, lambda: store.clean_terminal_coordination([over])[0], "cleaned")

    def _durable(self, job: str, view: JobView, token: int, worker: WorkerRecord) -> Iterator[Step]:
        holder = self.workers.get(view.coordination.reservation or "", WorkerRecord("nobody"))
        decisions = [
            pure.authorize_attempt(view, holder, LIMITS),
            pure.advance_attempt(view, token, 1, worker, LIMITS),
            pure.advance_attempt(view, token, 2, worker, LIMITS),
            *(pure.send_outcome(view, token, outcome, worker) for outcome in OutcomeRequest),
            *(pure.process_outcome(view, one, LIMITS)[1] for one in TOKENS if view.attempt(one)),
            pure.reap_lost_attempt(view, token, LIMITS),
            pure.schedule_retry(view),
            pure.finalize_cancel(view),
        ]
        decisions += [
            pure.cooperative_stop(view, one.token, self.workers[one.worker]) for one in view.attempts
        ]
        yield from (Step("durable", job, decision) for decision in decisions if decision.accepted)

    # --- what happens to all at once ----------------------------------------------------------------------

    def tick(self) -> None:
        self.data.older(TICK_MS)
        self._each(lambda view: _value(pure.tick(view, LIMITS), view))

    def expire_leases(self) -> None:
        lapsed = {(one.job_id, one.token) for one in self.store.expire_leases().lapsed}
        for job, view in list(self.views.items()):
            for lease in view.coordination.leases:
                decision = pure.expire_lease(self.views[job], lease.token, LIMITS)
                assert decision.accepted is ((job, lease.token) in lapsed), (job, lease)
                self.views[job] = _value(decision, self.views[job])
        self.taken += ["expire_lease"] * len(lapsed)

    def expire_reservations(self) -> None:
        lapsed = {one.job_id for one in self.store.expire_reservations().lapsed}
        for job, view in list(self.views.items()):
            decision = pure.expire_reservation(view, LIMITS)
            assert decision.accepted is (job in lapsed), job
            self.views[job] = _value(decision, view)
        self.taken += ["expire_reservation"] * len(lapsed)

    def crash(self, slot: int) -> None:
        worker, self.slots[slot] = self.slots[slot], self._incarnation()
        down = pure.declare_down(self.workers[worker])
        assert isinstance(down, Accepted)
        self.workers[worker] = down.value
        self._each(lambda view: pure.stop_attempts_of(view, worker))

    def wipe(self, keep: set[str]) -> None:
        lost = (self.data.present() - keep) | {"permits"}
        self.data.raw.delete(*(self.data.key(name) for name in lost))
        self._each(lose_coordination_state)
        self.taken.append("wipe")

    def request_cancel(self, job: str) -> None:
        self.views[job] = _value(pure.request_cancel(self.views[job]), self.views[job])

    def replace_the_finished(self) -> None:
        """A job that is over is cleaned away, and the next of its name begins with nothing left of it in
        Redis.
        """
        for job, view in list(self.views.items()):
            if not view.job.terminal:
                continue
            for token in TOKENS:
                self.store.release_lease([ask.ReleaseLeaseRequest(job, token, self._attempt(job, token))])
            self.store.clean_terminal_coordination([ask.CleanRequest(job, view.job.current_token)])
            assert self.store.snapshot([job]).facts[job].empty
            self.views[job] = JobView()
            self.round[job] += 1

    def check(self) -> None:
        """All of Redis against all of the model."""
        facts = self.store.snapshot(JOBS).facts
        for job, view in self.views.items():
            assert record_in_ticks(facts[job]) == live(view).coordination, job
        assert self.store.count_permits().total == self.usage("").global_used <= LIMITS.global_limit
        self.data.check_index()

    # --- reading the model --------------------------------------------------------------------------------

    def usage(self, worker: str) -> Usage:
        views = self.views.values()
        permits = sum(view.coordination.reservation is not None for view in views)
        permits += sum(view.coordination.live_lease_count for view in views)
        mine = sum(view.coordination.reservation == worker for view in views)
        return Usage(permits, mine + self._executing(worker))

    def _executing(self, worker: str) -> int:
        attempts = [attempt for view in self.views.values() for attempt in view.attempts]
        return sum(one.worker == worker and one.state is AttemptState.EXECUTING for one in attempts)

    def _current(self, job: str) -> tuple[JobView, int, WorkerRecord]:
        view = self.views[job]
        attempt = view.attempt(view.job.current_token)
        return view, view.job.current_token, self.workers[attempt.worker if attempt else self.slots[0]]

    def _attempt(self, job: str, token: int) -> str:
        return f"{job}/{self.round[job]}/{token}"

    def _incarnation(self) -> str:
        worker = WorkerRecord(f"w{len(self.workers)}")
        self.workers[worker.id] = worker
        return worker.id

    def _each(self, change: Callable[[JobView], JobView]) -> None:
        self.views = {job: change(view) for job, view in self.views.items()}


def _value(decision: Decision[JobView], unchanged: JobView) -> JobView:
    return decision.value if isinstance(decision, Accepted) else unchanged


def live(view: JobView) -> JobView:
    """The view without the leases that Redis cannot hold: those that are over."""
    leases: tuple[LeaseRecord, ...] = tuple(
        lease for lease in view.coordination.leases if lease.state is LeaseState.LIVE
    )
    return replace(view, coordination=replace(view.coordination, leases=leases))
