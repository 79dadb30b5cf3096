"""Comparing one script's answer and effect with the pure function's."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, settings

from jobs.protocol.decision import Accepted, Decision, Refusal
from jobs.protocol.records import AttemptRecord, CoordinationRecord, JobRecord, JobView, Limits, WorkerRecord
from jobs.protocol.states import AttemptState, LeaseState, Phase
from tests.coordination.drawn import Drawn
from tests.coordination.support import Data

W1 = WorkerRecord("w1")
LIMITS = Limits(max_attempts=9, lease_limit=2, reservation_limit=2)
thorough = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def live_only(record: CoordinationRecord) -> CoordinationRecord:
    """Redis holds live leases; whether an absent one expired or was lost is its holder's knowledge."""
    live = tuple(lease for lease in record.leases if lease.state is LeaseState.LIVE)
    return replace(record, leases=live)


def check(
    data: Data,
    decision: Decision[JobView],
    before: CoordinationRecord,
    after: CoordinationRecord,
    reply: str,
    accepting: str,
    refusing: dict[Refusal, set[str]],
) -> None:
    data.check_index()
    if isinstance(decision, Accepted):
        assert reply == accepting
        assert after == live_only(decision.value.coordination)
    else:
        assert reply in refusing[decision.reason], (reply, decision.reason)
        assert after == before


def running(drawn: Drawn, coordination: CoordinationRecord, state: AttemptState) -> JobView:
    """The job as Running under its current token, whose attempt is worker w1's."""
    token = drawn.current_token
    attempt = AttemptRecord(token, "w1", state, progress=2)
    job = JobRecord(Phase.RUNNING, current_token=token, authority=token, dispatch_needed=False)
    return JobView(job, (attempt,), coordination)
