"""The parts that need no process: the trust window, the stop's escalation, the envelope, what an ending
records.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from jobs.ids import new_id
from jobs.protocol import Fence
from jobs.protocol.states import LeaseState, OutcomeRequest
from jobs.transitions import Offer
from workers.envelope import EnvelopeFault, ExecutionEnvelope, ResumeEnvelope
from workers.escalation import FENCED_GRACE_S, Step, StopLadder
from workers.handlers.api import StopReason
from workers.heartbeat import Pulse, Rhythm, TrustWindow
from workers.host.lines import LINE_BYTES_MAX, Line, LineClosed
from workers.settlement import Ending, How, closing_of

FENCE = Fence(new_id(), 3)
INCARNATION = new_id()


def test_trust_counts_from_before_the_call_that_renewed() -> None:
    window = TrustWindow.opened(before_the_grant=100.0, lease_s=15.0)
    assert not window.is_closed(114.9)
    assert window.is_closed(115.0)
    window.renewed(before_the_call=110.0)
    assert window.closes_at == 125.0


def test_a_late_answer_to_an_early_call_never_shortens_or_extends_trust() -> None:
    window = TrustWindow.opened(before_the_grant=100.0, lease_s=15.0)
    window.renewed(before_the_call=110.0)
    window.renewed(before_the_call=105.0)
    assert window.closes_at == 125.0


@pytest.mark.parametrize(
    ("pulse", "within_s"), [(Pulse.RENEWED, 5.0), (Pulse.SILENT, 1.25), (Pulse.LOST, 1.25)]
)
def test_without_an_answer_the_next_beat_comes_sooner(pulse: Pulse, within_s: float) -> None:
    rhythm = Rhythm(period_s=5.0, due_at=0.0)
    rhythm.beaten(100.0, pulse)
    assert 100.0 + 0.8 * within_s <= rhythm.due_at <= 100.0 + within_s


def test_a_stop_climbs_from_request_to_term_to_kill() -> None:
    ladder = StopLadder(grace_s=10.0)
    assert ladder.climb(0.0) is None
    assert ladder.ask(StopReason.CANCEL, now=100.0)
    assert ladder.climb(109.9) is None
    assert ladder.climb(110.0) is Step.TERMINATED
    assert ladder.climb(114.9) is None
    assert ladder.climb(115.0) is Step.KILLED
    assert ladder.climb(1000.0) is None


def test_a_weightier_reason_overrules_and_a_lighter_one_is_no_news() -> None:
    ladder = StopLadder(grace_s=10.0)
    assert ladder.ask(StopReason.DRAIN, now=0.0)
    assert not ladder.ask(StopReason.DRAIN, now=1.0)
    assert ladder.ask(StopReason.LEASE_LOST, now=2.0)
    assert not ladder.ask(StopReason.CANCEL, now=2.5)
    assert ladder.reason is StopReason.LEASE_LOST
    assert ladder.due_at == 2.0 + FENCED_GRACE_S


def envelope(**changes: Any) -> ExecutionEnvelope:
    made = ExecutionEnvelope(
        fence=FENCE,
        attempt_id=new_id(),
        incarnation=INCARNATION,
        kind="probe",
        spec={"steps": [], "name": "ü\u0000x"},
        spec_digest="d" * 64,
        queue="default",
        concurrency_key="",
        staging="/target/area",
        initial_progress=7,
        max_attempts=3,
        resume=ResumeEnvelope(7, {"a": 1}, 2, new_id(), "/target/earlier"),
    )
    return replace(made, **changes)


def test_an_envelope_is_the_same_after_its_way_to_the_host() -> None:
    sent = envelope()
    assert ExecutionEnvelope.from_message(sent.as_message()) == sent
    without = envelope(resume=None, time_limit_s=1.5)
    assert ExecutionEnvelope.from_message(without.as_message()) == without


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({}, None),
        ({"fence": Fence(new_id(), 3)}, EnvelopeFault.OTHER_JOB),
        ({"fence": Fence(FENCE.job_id, 2)}, EnvelopeFault.OTHER_TOKEN),
        ({"spec_digest": "e" * 64}, EnvelopeFault.OTHER_SPEC),
        ({"kind": "transfer"}, EnvelopeFault.OTHER_KIND),
        ({"incarnation": new_id()}, EnvelopeFault.OTHER_INCARNATION),
        ({"max_attempts": 2}, EnvelopeFault.BEYOND_BUDGET),
        ({"staging": ""}, EnvelopeFault.NO_STAGE),
    ],
)
def test_an_envelope_that_does_not_fit_its_offer_is_named(
    changes: dict[str, Any], fault: EnvelopeFault | None
) -> None:
    assert isinstance(FENCE.job_id, UUID)
    offer = Offer(FENCE.job_id, 3, "probe", "default", 0, "", "d" * 64)
    assert envelope(**changes).fault(offer, INCARNATION, {"probe"}) is fault


def test_a_kind_that_is_not_served_is_a_fault() -> None:
    assert isinstance(FENCE.job_id, UUID)
    offer = Offer(FENCE.job_id, 3, "probe", "default", 0, "", "d" * 64)
    assert envelope().fault(offer, INCARNATION, {"transfer"}) is EnvelopeFault.KIND_NOT_SERVED


def test_a_success_counts_even_if_a_stop_was_asked_meanwhile() -> None:
    descriptor = {"digest": "x", "size": 1, "members": 2, "bytes": 3, "location": "/there"}
    ending = Ending(How.SUCCESS, {"descriptor": descriptor}, stop=StopReason.CANCEL)
    settle = closing_of(FENCE, ending).settle
    assert settle is not None
    assert (settle.outcome, settle.total) == (OutcomeRequest.SUCCESS, 3)


@pytest.mark.parametrize(
    ("ending", "drained", "reason"),
    [
        (Ending(How.STOPPED, stop=StopReason.DRAIN), True, "drained"),
        (Ending(How.DIED, stop=StopReason.DRAIN), True, "drained"),
        (Ending(How.STOPPED, stop=StopReason.TIME_LIMIT), False, "its time limit passed"),
        (Ending(How.DIED, died_of="signal 9"), False, "attempt process died (signal 9)"),
    ],
)
def test_what_is_no_success_but_may_be_tried_again(ending: Ending, drained: bool, reason: str) -> None:
    settle = closing_of(FENCE, ending).settle
    assert settle is not None
    assert (settle.outcome, settle.drained, settle.reason) == (
        OutcomeRequest.RETRYABLE_FAILURE,
        drained,
        reason,
    )


@pytest.mark.parametrize("how", [How.STOPPED, How.DIED])
def test_an_attempt_without_its_lease_records_only_that_it_stopped(how: How) -> None:
    ending = Ending(how, stop=StopReason.LEASE_LOST, lease=LeaseState.EXPIRED)
    closing = closing_of(FENCE, ending)
    assert closing.settle is None
    assert closing.stop is not None
    assert (closing.stop.lease, closing.stop.cancel_notice) == (LeaseState.EXPIRED, False)


@pytest.fixture
def ends() -> Iterator[tuple[Line, Line]]:
    ours, theirs = (Line(one) for one in socket.socketpair())
    yield ours, theirs
    ours.close()
    theirs.close()


def test_a_line_carries_what_is_sent_and_ends_with_its_other_end(ends: tuple[Line, Line]) -> None:
    ours, theirs = ends
    theirs.send({"say": "a\nb"})
    theirs.send({"say": "c"})
    heard: list[Any] = []
    while len(heard) < 2:
        heard += ours.wait(5)
    assert [message["say"] for message in heard] == ["a\nb", "c"]
    theirs.close()
    with pytest.raises(LineClosed):
        ours.read()
    with pytest.raises(LineClosed):
        ours.send({"say": "nobody"})


def test_a_line_refuses_what_is_too_long_and_what_is_not_json(ends: tuple[Line, Line]) -> None:
    ours, _ = ends
    with pytest.raises(ValueError, match="longer than a line"):
        ours.send({"say": "x" * LINE_BYTES_MAX})
    with pytest.raises(ValueError, match="JSON compliant"):
        ours.send({"say": float("nan")})
