"""Random histories of jobs and workers: after every step PostgreSQL holds what the pure functions give.

Refusals are compared too. The model's side is the pure functions alone, on whole slices; the store loads only
some of a job's attempts, so this also shows that what it leaves out does not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from jobs import audit, protocol, transitions
from jobs.ids import IncarnationId
from jobs.models import Attempt, Job
from jobs.protocol import (
    Accepted,
    CoordinationRecord,
    Decision,
    Fence,
    JobView,
    LeaseRecord,
    Refusal,
    Refused,
    WorkerRecord,
)
from jobs.protocol.states import LeaseState, OutcomeRequest
from jobs.rows import attempt_record, job_record
from jobs.transitions import CancelRequest, InvalidateRequest, StageCompleteRequest, StopReport
from jobs.values import SYSTEM, Declined, Unasked
from tests.durable import driver
from tests.durable.modelled import MAX_ATTEMPTS, Modelled, agree

PICK = st.integers(0, 1)
SELDOM = st.integers(0, 5).map(lambda n: n == 0)
TOKEN = st.sampled_from([0, 0, 0, 0, 1, 2])
"""Which attempt: 0 is the current one, so that most steps have a chance; others may be stale or not there."""
LEASE = st.sampled_from([None, *LeaseState])
QUIET = (Refusal.NOTHING_CHANGED, Refusal.NO_PROGRESS)


class StoreAgainstModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.jobs: list[Modelled] = []
        self.workers: dict[IncarnationId, WorkerRecord] = {}

    @initialize()
    def accept_jobs(self) -> None:
        policy = {"max_attempts": MAX_ATTEMPTS, "max_failures": 99, "max_losses": 99}
        self.jobs.extend(Modelled(driver.accept(**policy)) for _ in range(2))
        for _ in range(2):
            self.start(really=True)

    @rule(really=SELDOM)
    def start(self, really: bool) -> None:
        if really and len(self.workers) < 4:
            id_ = driver.start_worker()
            self.workers[id_] = WorkerRecord(str(id_))

    @rule(pick=PICK, really=SELDOM)
    def crash(self, pick: int, really: bool) -> None:
        if not really:
            return
        id_ = self._worker(pick)
        expected = protocol.declare_down(self.workers[id_])
        agree(transitions.declare_down([id_], why="test")[0], expected)
        if isinstance(expected, Accepted):
            self.workers[id_] = expected.value
            for job in self.jobs:
                job.view = protocol.stop_attempts_of(job.view, str(id_))

    @rule(pick=PICK, pick_worker=PICK, foreign=SELDOM)
    def authorize(self, pick: int, pick_worker: int, foreign: bool) -> None:
        job, worker = self._job(pick), self._worker(pick_worker)
        seen = CoordinationRecord(reservation="another" if foreign else str(worker))
        request = driver.request_for(job.id, worker)
        (answer,) = transitions.authorize_attempt(
            [request], observe=driver.seeing(seen), locate=driver.locate
        )
        record = self.workers[worker]
        agree(answer, job.take(protocol.authorize_attempt(job.seeing(seen), record, job.limits())))

    @rule(pick=PICK, token=TOKEN)
    def activate(self, pick: int, token: int) -> None:
        token = self._token(pick, token)

        def decide(job: Modelled, worker: WorkerRecord) -> Decision[JobView]:
            attempt = job.view.attempt(token)
            if attempt and attempt.state == "AttemptExecuting" and job.view.current_authority(token):
                return Accepted(job.view)
            seen = CoordinationRecord(reservation=worker.id)
            return job.take(protocol.activate_attempt(job.seeing(seen), token, worker))

        self._on_attempt(pick, token, lambda fence: transitions.record_activated([fence]), decide)

    @rule(pick=PICK, token=TOKEN, progress=st.integers(0, 5))
    def checkpoint(self, pick: int, token: int, progress: int) -> None:
        token = self._token(pick, token)

        def decide(job: Modelled, worker: WorkerRecord) -> Decision[JobView]:
            fenced = protocol.persist_checkpoint(job.view, token, worker)
            if isinstance(fenced, Refused) and fenced.reason not in QUIET:
                return fenced
            job.take(protocol.advance_attempt(job.view, token, progress, worker, job.limits(token)))
            job.take(protocol.persist_checkpoint(job.view, token, worker))
            return Accepted(job.view)

        self._on_attempt(pick, token, lambda fence: [driver.checkpoint(fence, progress)], decide)

    @rule(pick=PICK, token=TOKEN)
    def complete(self, pick: int, token: int) -> None:
        token = self._token(pick, token)

        self._on_attempt(
            pick,
            token,
            lambda f: transitions.record_stage_complete([StageCompleteRequest(f, 5)]),
            lambda j, w: j.complete(token, w),
        )

    @rule(pick=PICK, token=TOKEN, succeeds=st.booleans())
    def settle(self, pick: int, token: int, succeeds: bool) -> None:
        token = self._token(pick, token)

        def decide(job: Modelled, worker: WorkerRecord) -> Decision[Any]:
            before = job.view.attempt(token)
            if succeeds and (refused := job.complete(token, worker)).refused:
                return refused
            outcome = OutcomeRequest.SUCCESS if succeeds else OutcomeRequest.RETRYABLE_FAILURE
            if before and before.pending_outcome is OutcomeRequest.NONE:
                sent = job.take(protocol.send_outcome(job.view, token, outcome, worker))
                if sent.refused:
                    return sent
            name, decision = protocol.process_outcome(job.view, token, job.limits(token))
            job.take(decision)
            if name == "RejectOutcome" and decision.accepted:
                job.take(protocol.cooperative_stop(job.view, token, worker))
            return decision

        fitting = self._job(pick).unsettled(token, succeeds)
        if fitting is None:
            return
        request = driver.success if succeeds else driver.failure
        self._on_attempt(pick, token, lambda f: transitions.settle([replace(request(f), **fitting)]), decide)

    @rule(pick=PICK, token=TOKEN)
    def send_failure(self, pick: int, token: int) -> None:
        token = self._token(pick, token)

        def decide(job: Modelled, worker: WorkerRecord) -> Decision[JobView]:
            outcome = OutcomeRequest.RETRYABLE_FAILURE
            return job.take(protocol.send_outcome(job.view, token, outcome, worker))

        self._on_attempt(pick, token, lambda fence: transitions.send_outcome([driver.failure(fence)]), decide)

    @rule(pick=PICK, token=TOKEN)
    def process(self, pick: int, token: int) -> None:
        token = self._token(pick, token)

        def decide(job: Modelled, worker: WorkerRecord) -> Decision[JobView]:
            return job.take(protocol.process_outcome(job.view, token, job.limits(token))[1])

        self._on_attempt(pick, token, lambda fence: transitions.process_outcome([fence]), decide)

    @rule(pick=PICK, token=TOKEN, lease=LEASE, reserved=st.booleans())
    def reap(self, pick: int, token: int, lease: LeaseState | None, reserved: bool) -> None:
        token = self._token(pick, token)
        leases = () if lease is None else (LeaseRecord(token, lease),)
        seen = CoordinationRecord(reservation="somebody" if reserved else None, leases=leases)

        def decide(job: Modelled, worker: WorkerRecord) -> Decision[JobView]:
            return job.take(protocol.reap_lost_attempt(job.seeing(seen), token, job.limits(token)))

        self._on_attempt(
            pick,
            token,
            lambda fence: transitions.reap_lost_attempt([fence], observe=driver.seeing(seen)),
            decide,
        )

    @rule(pick=PICK, token=TOKEN, lease=LEASE, notice=st.booleans())
    def stop(self, pick: int, token: int, lease: LeaseState | None, notice: bool) -> None:
        token = self._token(pick, token)
        leases = () if lease is None else (LeaseRecord(token, lease),)
        seen = CoordinationRecord(leases=leases, cancel_notice=notice)

        def decide(job: Modelled, worker: WorkerRecord) -> Decision[JobView]:
            attempt = job.view.attempt(token)
            if attempt and attempt.state in ("AttemptStopped", "AttemptCommitted"):
                return Accepted(job.view)
            return job.take(protocol.cooperative_stop(job.seeing(seen), token, worker))

        self._on_attempt(
            pick, token, lambda f: transitions.cooperative_stop([StopReport(f, lease, notice)]), decide
        )

    @rule(pick=PICK, token=TOKEN)
    def clean(self, pick: int, token: int) -> None:
        token = self._token(pick, token)

        def decide(job: Modelled, worker: WorkerRecord) -> Decision[JobView]:
            return job.take(protocol.cleanup_stage(job.view, token, worker))

        def request(fence: Fence) -> Any:
            answers = transitions.cleanup_stage([fence])
            # Kept for a successor: the store waits where the module may go on.
            return None if answers[0] == Declined(Unasked.STAGE_STILL_NEEDED) else answers

        self._on_attempt(pick, token, request, decide)

    @rule(pick=PICK, action=st.sampled_from(["schedule_retry", "request_cancel", "finalize_cancel"]))
    def whole_job(self, pick: int, action: str) -> None:
        job = self._job(pick)
        requests: dict[str, Callable[[], Any]] = {
            "schedule_retry": lambda: transitions.schedule_retry([job.id], due_only=False),
            "request_cancel": lambda: transitions.request_cancel([CancelRequest(job.id)], actor=SYSTEM),
            "finalize_cancel": lambda: transitions.finalize_cancel([job.id]),
        }
        (answer,) = requests[action]()
        agree(answer, job.take(getattr(protocol, action)(job.view)))

    @rule(pick=PICK)
    def invalidate(self, pick: int) -> None:
        job = self._job(pick)
        (answer,) = transitions.invalidate_checkpoint([InvalidateRequest(job.id, "test")])
        decision = job.take(protocol.invalidate_checkpoint(job.view))
        if decision == Refused(Refusal.CHECKPOINT_NOT_VALID):
            decision = Accepted(job.view)
        agree(answer, decision)

    @invariant()
    def the_store_holds_what_the_model_gives(self) -> None:
        for job in self.jobs:
            rows = Attempt.objects.filter(job_id=job.id).order_by("token")
            stored = JobView(
                job_record(Job.objects.get(id=job.id)), tuple(attempt_record(row) for row in rows)
            )
            assert stored == job.view

    def teardown(self) -> None:
        report = audit.audit([job.id for job in self.jobs])
        assert report.clean, report.broken

    def _job(self, pick: int) -> Modelled:
        return self.jobs[pick % len(self.jobs)]

    def _token(self, pick: int, token: int) -> int:
        return token or self._job(pick).view.job.current_token or 1

    def _worker(self, pick: int) -> IncarnationId:
        return list(self.workers)[-1 - pick]  # the newest: the older ones are more often Down

    def _on_attempt(
        self,
        pick: int,
        token: int,
        request: Callable[[Fence], Any],
        decide: Callable[[Modelled, WorkerRecord], Decision[Any]],
    ) -> None:
        job = self._job(pick)
        answers = request(Fence(job.id, token))
        attempt = job.view.attempt(token)
        if attempt is None:
            assert isinstance(answers[0], Declined)
        elif answers is not None:
            worker = next(w for w in self.workers.values() if w.id == attempt.worker)
            agree(answers[0], decide(job, worker))


@pytest.mark.slow
def test_the_store_equals_the_model(transactional_db: None) -> None:
    run_state_machine_as_test(
        StoreAgainstModel,
        settings=settings(
            max_examples=30,
            stateful_step_count=40,
            deadline=None,
            phases=[Phase.explicit, Phase.generate],  # to shrink takes minutes on a real database
            suppress_health_check=list(HealthCheck),
            print_blob=True,
        ),
    )
