"""The scripts of progress, notices and cleaning against the pure functions, like test_against_protocol.py."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.protocol import execution
from jobs.protocol.cancellation import publish_cancel_notice
from jobs.protocol.cleanup import clean_terminal_coordination, clear_stale_live_progress
from jobs.protocol.decision import Refusal
from jobs.protocol.records import CoordinationRecord, JobRecord, JobView
from jobs.protocol.states import AttemptState, Phase
from tests.coordination.comparing import W1, check, running, thorough
from tests.coordination.drawn import JOB, Drawn, attempt_id, seen, states
from tests.coordination.support import Data
from workers.coordination.replies import (
    CleanReply,
    ClearProgressReply,
    NoticeReply,
    ReportReply,
)
from workers.coordination.requests import (
    CleanRequest,
    ClearProgressRequest,
    NoticeRequest,
    ReportRequest,
)
from workers.coordination.store import CoordinationStore


@pytest.fixture
def store(patient_store: CoordinationStore) -> CoordinationStore:
    return patient_store


@given(drawn=states(token_min=1))
@thorough
def test_report_progress(store: CoordinationStore, data: Data, drawn: Drawn) -> None:
    drawn.install(store, data)
    token = drawn.current_token
    before = seen(store, token + 1, token)
    [reply] = store.report_progress([ReportRequest(JOB, token, attempt_id(token), 2)])
    after = seen(store, token + 1, token)
    decision = execution.report_progress(running(drawn, before, AttemptState.EXECUTING), token, W1)
    refusing = {Refusal.LEASE_NOT_LIVE: {"lease_not_live"}, Refusal.NOTHING_CHANGED: {"unchanged"}}
    check(data, decision, before, after, reply, ReportReply.REPORTED, refusing)


@given(drawn=states(token_min=1))
@thorough
def test_publish_cancel_notice(store: CoordinationStore, data: Data, drawn: Drawn) -> None:
    drawn.install(store, data)
    token = drawn.current_token
    before = seen(store, token + 1, token)
    [reply] = store.publish_cancel_notice([NoticeRequest(JOB, token)])
    after = seen(store, token + 1, token)
    view = running(drawn, before, AttemptState.EXECUTING)
    decision = publish_cancel_notice(view.with_job(phase=Phase.CANCELLING, cancel_requested=True))
    refusing = {Refusal.NOTICE_PRESENT: {"notice_present"}}
    check(data, decision, before, after, reply, NoticeReply.PUBLISHED, refusing)


@given(drawn=states(token_min=1), has_authority=st.booleans())
@thorough
def test_clear_stale_live_progress(
    store: CoordinationStore, data: Data, drawn: Drawn, has_authority: bool
) -> None:
    drawn.install(store, data)
    token = drawn.current_token
    before = seen(store, token + 1, token)
    authority = token if has_authority else 0
    [reply] = store.clear_stale_live_progress([ClearProgressRequest(JOB, token, authority)])
    after = seen(store, token + 1, token)
    if drawn.progress is not None and drawn.progress[0] > token:
        assert (reply, after) == (ClearProgressReply.NEWER_THAN_READ, before)
        return
    view = running(drawn, before, AttemptState.EXECUTING)
    if not has_authority:
        view = view.with_job(phase=Phase.RETRY_WAIT, authority=0)
    decision = clear_stale_live_progress(view)
    refusing = {
        Refusal.NO_LIVE_PROGRESS: {"no_live_progress"},
        Refusal.PROGRESS_IS_BACKED: {"progress_is_backed"},
    }
    check(data, decision, before, after, reply, ClearProgressReply.CLEARED, refusing)


@given(drawn=states())
@thorough
def test_clean_terminal_coordination(store: CoordinationStore, data: Data, drawn: Drawn) -> None:
    drawn.install(store, data)
    token = drawn.current_token
    before = store.snapshot([JOB]).facts[JOB].record
    [reply] = store.clean_terminal_coordination([CleanRequest(JOB, token)])
    after = store.snapshot([JOB]).facts[JOB].record
    before, after = (_ageless(record) for record in (before, after))
    newest = max(drawn.marker or 0, token + 1, drawn.progress[0] + 1 if drawn.progress else 0)
    if newest > token + 1:
        assert (reply, after) == (CleanReply.NEWER_THAN_READ, before)
        return
    job = JobRecord(Phase.FAILED, current_token=token, dispatch_needed=False)
    decision = clean_terminal_coordination(JobView(job, (), before))
    check(
        data,
        decision,
        before,
        after,
        reply,
        CleanReply.CLEANED,
        {Refusal.COORDINATION_CLEAN: {"coordination_clean"}},
    )


def _ageless(record: CoordinationRecord) -> CoordinationRecord:
    aged = tuple(replace(lease, age=1) for lease in record.leases)
    return replace(record, leases=aged, reservation_age=1 if record.reservation else 0)
