"""Each script against the pure function, over generated states.

The durable half of a view is what the script's caller has read under the row lock, so its guards hold here,
except where a script compares with that read itself. Then: accepted by one is accepted by the other, with
the same record after; refused is refused, for a reason that fits, and nothing has changed. Index and
deadlines may be lost, garbage may lie about, and tokens may be stale or foreign: the answer is the same.
"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.protocol import dispatch, leases
from jobs.protocol.decision import Accepted, Refusal
from jobs.protocol.records import JobRecord, JobView, LeaseRecord, Usage
from jobs.protocol.states import AttemptState, LeaseState, Phase
from tests.coordination.comparing import LIMITS, W1, check, running, thorough
from tests.coordination.drawn import JOB, Drawn, attempt_id, seen, states
from tests.coordination.support import QUEUE, Data
from workers.coordination.replies import (
    ActivateReply,
    EnqueueReply,
    RegrantReply,
    ReleaseLeaseReply,
    ReleaseReservationReply,
    RenewReply,
    ReserveReply,
)
from workers.coordination.requests import (
    ActivateRequest,
    EnqueueRequest,
    PermitLimits,
    RegrantRequest,
    ReleaseLeaseRequest,
    ReleaseReservationRequest,
    RenewRequest,
    ReserveRequest,
)
from workers.coordination.store import CoordinationStore


@pytest.fixture
def store(patient_store: CoordinationStore) -> CoordinationStore:
    return patient_store


@given(drawn=states())
@thorough
def test_enqueue(store: CoordinationStore, data: Data, drawn: Drawn) -> None:
    drawn.install(store, data)
    expected = drawn.current_token + 1
    before = seen(store, expected, expected)
    [reply] = store.enqueue([EnqueueRequest(JOB, expected, QUEUE)])
    after = seen(store, expected, expected)
    if drawn.marker is not None and drawn.marker > expected and drawn.reservation is None:
        assert (reply, after) == (EnqueueReply.MARKER_FOR_NEWER_TOKEN, before)
        return
    decision = dispatch.enqueue(JobView(JobRecord(current_token=drawn.current_token), (), before))
    refusing = {
        Refusal.MARKER_PRESENT: {"marker_present", "reserved"},
        Refusal.RESERVED: {"reserved"},
    }
    check(data, decision, before, after, reply, EnqueueReply.ENQUEUED, refusing)


@given(
    drawn=states(),
    global_limit=st.integers(0, 6),
    local_limit=st.integers(0, 4),
    executing=st.integers(0, 3),
)
@thorough
def test_reserve(
    store: CoordinationStore, data: Data, drawn: Drawn, global_limit: int, local_limit: int, executing: int
) -> None:
    drawn.install(store, data)
    expected = drawn.current_token + 1
    before = seen(store, expected, expected)
    limits = PermitLimits(global_limit=global_limit, local_limit=local_limit)
    request = ReserveRequest(JOB, expected, "w1", "c1", QUEUE, limits=limits, executing_here=executing)
    [reply] = store.reserve([request])
    after = seen(store, expected, expected)
    usage = Usage(drawn.permits, drawn.reservations_of("w1") + executing)
    bounds = replace(LIMITS, global_limit=global_limit, local_limit=local_limit)
    decision = dispatch.reserve(JobView(JobRecord(), (), before), W1, usage, bounds)
    mine = before.reservation == "w1"
    taken = {"already_yours"} if mine else {"taken"}
    refusing = {
        Refusal.NO_MARKER: taken if before.reservation else {"no_marker", "marker_for_other_token"},
        Refusal.RESERVED: taken,
        Refusal.NO_GLOBAL_PERMIT: {"global_limit"},
        Refusal.NO_LOCAL_PERMIT: {"local_limit"},
    }
    check(data, decision, before, after, reply, ReserveReply.RESERVED, refusing)
    assert store.count_permits().total <= max(global_limit, drawn.permits)


@given(drawn=states(token_min=1))
@thorough
def test_activate_attempt(store: CoordinationStore, data: Data, drawn: Drawn) -> None:
    drawn.install(store, data)
    token = drawn.current_token
    before = seen(store, token + 1, token)
    request = ActivateRequest(JOB, token, attempt_id(token), "w1", "c1", progress=2)
    [grant] = store.activate_attempt([request])
    after = seen(store, token + 1, token)
    if drawn.lease is not None and drawn.lease.token >= token:
        # The module's attempt is not Authorized any more (its answer was lost), or the lease is from nowhere.
        active = drawn.lease.token == token
        assert grant.reply is (ActivateReply.ALREADY_ACTIVE if active else ActivateReply.SUPERSEDED)
        assert after == before
        return
    decision = dispatch.activate_attempt(running(drawn, before, AttemptState.AUTHORIZED), token, W1)
    refusing = {Refusal.NOT_RESERVED: {"not_reserved", "reserved_by_another"}}
    check(data, decision, before, after, grant.reply, ActivateReply.ACTIVATED, refusing)
    assert store.count_permits().total <= drawn.permits


@given(drawn=states(token_min=1), same_epoch=st.booleans())
@thorough
def test_renew_lease(store: CoordinationStore, data: Data, drawn: Drawn, same_epoch: bool) -> None:
    drawn.install(store, data)
    token = drawn.current_token
    before = seen(store, token + 1, token)
    grant_epoch = data.epoch() if same_epoch else "an epoch of before"
    [reply] = store.renew_lease([RenewRequest(JOB, token, attempt_id(token), grant_epoch)])
    after = seen(store, token + 1, token)
    decision = leases.renew_lease(running(drawn, before, AttemptState.EXECUTING), token, W1)
    newer = drawn.lease is not None and drawn.lease.token > token
    absent = {"superseded"} if newer else {"lease_expired"} if same_epoch else {"lease_lost"}
    check(data, decision, before, after, reply, RenewReply.RENEWED, {Refusal.LEASE_NOT_LIVE: absent})


@given(drawn=states(token_min=1, ahead=0), same_epoch=st.booleans(), global_limit=st.integers(0, 6))
@thorough
def test_regrant_lease(
    store: CoordinationStore, data: Data, drawn: Drawn, same_epoch: bool, global_limit: int
) -> None:
    drawn.install(store, data)
    token = drawn.current_token
    before = seen(store, token + 1, token)
    grant_epoch = data.epoch() if same_epoch else "an epoch of before"
    request = RegrantRequest(
        JOB, token, attempt_id(token), "w1", grant_epoch, QUEUE, limits=PermitLimits(global_limit)
    )
    [grant] = store.regrant_lease([request])
    after = seen(store, token + 1, token)
    held = before
    if not before.lease_is_live(token):  # what its holder knows of a lease that is absent
        state = LeaseState.EXPIRED if same_epoch else LeaseState.LOST
        held = before.with_lease(LeaseRecord(token, state))
    view = running(drawn, held, AttemptState.EXECUTING)
    bounds = replace(LIMITS, global_limit=global_limit)
    decision = leases.regrant_lease(view, token, W1, Usage(drawn.permits, 0), bounds)
    if isinstance(decision, Accepted):
        # One slot per job: an older attempt's lease, which no wipe can leave behind, is retired as well.
        regranted = replace(decision.value.coordination, leases=(LeaseRecord(token, LeaseState.LIVE),))
        decision = Accepted(replace(decision.value, coordination=regranted))
    live = before.lease_is_live(token)
    refusing = {
        Refusal.LEASE_NOT_LOST: {"already_live"} if live else {"lease_expired"},
        Refusal.NO_GLOBAL_PERMIT: {"global_limit"},
    }
    check(data, decision, before, after, grant.reply, RegrantReply.REGRANTED, refusing)


@given(drawn=states(token_min=1))
@thorough
def test_expire_leases(store: CoordinationStore, data: Data, drawn: Drawn) -> None:
    drawn.install(store, data)
    token = drawn.lease.token if drawn.lease else drawn.current_token
    before = seen(store, token + 1, token)
    sweep = store.expire_leases()
    after = seen(store, token + 1, token)
    decision = leases.expire_lease(JobView(coordination=before), token, LIMITS)
    reply = "lapsed" if any(one.job_id == JOB for one in sweep.lapsed) else "kept"
    refusing = {Refusal.LEASE_NOT_LIVE: {"kept"}, Refusal.LEASE_NOT_LAPSED: {"kept"}}
    check(data, decision, before, after, reply, "lapsed", refusing)


@given(drawn=states())
@thorough
def test_expire_reservations(store: CoordinationStore, data: Data, drawn: Drawn) -> None:
    drawn.install(store, data)
    token = drawn.reservation.token if drawn.reservation else drawn.current_token
    before = seen(store, token + 1, token)
    sweep = store.expire_reservations()
    after = seen(store, token + 1, token)
    decision = dispatch.expire_reservation(JobView(coordination=before), LIMITS)
    reply = "lapsed" if any(one.job_id == JOB for one in sweep.lapsed) else "kept"
    refusing = {Refusal.NOT_RESERVED: {"kept"}, Refusal.RESERVATION_NOT_LAPSED: {"kept"}}
    check(data, decision, before, after, reply, "lapsed", refusing)


@given(drawn=states(token_min=1))
@thorough
def test_release_reservation(store: CoordinationStore, data: Data, drawn: Drawn) -> None:
    drawn.install(store, data)
    token = drawn.current_token
    before = seen(store, token + 1, token)
    [reply] = store.release_reservation([ReleaseReservationRequest(JOB, token, "w1", "c1")])
    after = seen(store, token + 1, token)
    cancelling = JobView(running(drawn, before, AttemptState.AUTHORIZED).job, (), before)
    decision = dispatch.release_reservation(cancelling.with_job(phase=Phase.CANCELLING), W1)
    refusing = {
        Refusal.NOT_RESERVED: {"not_reserved"},
        Refusal.RESERVED_BY_ANOTHER: {"reserved_by_another"},
    }
    check(data, decision, before, after, reply, ReleaseReservationReply.RELEASED, refusing)


@given(drawn=states(token_min=1))
@thorough
def test_release_lease(store: CoordinationStore, data: Data, drawn: Drawn) -> None:
    drawn.install(store, data)
    token = drawn.current_token
    before = seen(store, token + 1, token)
    [reply] = store.release_lease([ReleaseLeaseRequest(JOB, token, attempt_id(token))])
    after = seen(store, token + 1, token)
    decision = leases.release_lease(running(drawn, before, AttemptState.STOPPED), token)
    newer = drawn.lease is not None and drawn.lease.token > token
    refusing = {Refusal.LEASE_NOT_LIVE: {"superseded"} if newer else {"lease_not_live"}}
    check(data, decision, before, after, reply, ReleaseLeaseReply.RELEASED, refusing)
