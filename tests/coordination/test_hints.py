"""Live progress and cancel notices: hints that a reader checks again, and what clears them away."""

from dataclasses import replace

import pytest

from tests.coordination.support import QUEUE, Data, leased, marker_fact, reserved
from workers.coordination.errors import CoordinationMisuse
from workers.coordination.replies import CleanReply, ClearProgressReply, NoticeReply, ReportReply
from workers.coordination.requests import (
    TOKEN_MAX,
    CleanRequest,
    ClearProgressRequest,
    EnqueueRequest,
    Heartbeat,
    Id,
    NoticeRequest,
    ReleaseLeaseRequest,
    ReportRequest,
)
from workers.coordination.store import CoordinationStore


def report(job: Id = "j1", token: int = 1, progress: int = 5, phase: str = "") -> ReportRequest:
    return ReportRequest(job, token, f"attempt-{job}-{token}", progress, None, phase)


def test_a_report_is_believed_only_from_the_attempt_whose_lease_is_present(store: CoordinationStore) -> None:
    leased(store, "j1", 2)
    other = replace(report(token=2), attempt_id="another attempt")
    stale = replace(report(token=1), attempt_id="attempt-j1-2")
    asked = [report(token=1), report(token=3), other, stale, report("j2")]
    assert store.report_progress(asked) == [ReportReply.LEASE_NOT_LIVE] * 5
    assert store.report_progress([report(token=2), report(token=2), report(token=2, progress=6)]) == [
        ReportReply.REPORTED,
        ReportReply.UNCHANGED,
        ReportReply.REPORTED,
    ]


def test_byte_counts_come_back_exactly_and_a_phase_is_cut_not_refused(store: CoordinationStore) -> None:
    leased(store, "j1")
    exact = ReportRequest("j1", 1, "attempt-j1-1", 2**63 - 2, 2**63 - 1, "ä" * 500 + "\0")
    store.report_progress([exact])
    progress = store.snapshot(["j1"]).facts["j1"].progress
    assert progress is not None
    assert (progress.progress, progress.total, progress.phase) == (2**63 - 2, 2**63 - 1, "ä" * 100)


def test_a_cancel_notice_is_set_once(store: CoordinationStore) -> None:
    assert store.publish_cancel_notice([NoticeRequest("j1", 1), NoticeRequest("j1", 1)]) == [
        NoticeReply.PUBLISHED,
        NoticeReply.NOTICE_PRESENT,
    ]
    assert store.snapshot(["j1"]).facts["j1"].notice_token == 1


def test_progress_is_cleared_unless_authority_and_lease_back_it(store: CoordinationStore) -> None:
    renew = leased(store, "j1", 2)
    assert store.clear_stale_live_progress(
        [ClearProgressRequest("j1", 2, 2), ClearProgressRequest("j2", 1, 1)]
    ) == [ClearProgressReply.PROGRESS_IS_BACKED, ClearProgressReply.NO_LIVE_PROGRESS]
    store.release_lease([ReleaseLeaseRequest("j1", 2, renew.attempt_id)])
    assert store.clear_stale_live_progress([ClearProgressRequest("j1", 2, 2)]) == [ClearProgressReply.CLEARED]


def test_progress_of_a_token_allocated_since_the_read_is_not_cleared(store: CoordinationStore) -> None:
    leased(store, "j1", 2)
    read_before = ClearProgressRequest("j1", current_token=1, authority=0)
    assert store.clear_stale_live_progress([read_before]) == [ClearProgressReply.NEWER_THAN_READ]
    lost_authority = ClearProgressRequest("j1", current_token=2, authority=0)
    assert store.clear_stale_live_progress([lost_authority]) == [ClearProgressReply.CLEARED]


def test_nothing_of_a_terminal_job_stays_but_its_lease(store: CoordinationStore, data: Data) -> None:
    renew = leased(store, "j1", 1)
    store.publish_cancel_notice([NoticeRequest("j1", 1)])
    store.enqueue([EnqueueRequest("j1", 2, QUEUE)])
    assert store.clean_terminal_coordination([CleanRequest("j1", 1), CleanRequest("j1", 1)]) == [
        CleanReply.CLEANED,
        CleanReply.COORDINATION_CLEAN,
    ]
    facts = store.snapshot(["j1"]).facts["j1"]
    assert replace(facts, lease=None).empty
    store.release_lease([ReleaseLeaseRequest("j1", 1, renew.attempt_id)])
    assert "j1" not in data.texts()


def test_when_all_jobs_are_gone_no_key_of_a_job_remains(store: CoordinationStore, data: Data) -> None:
    for number in range(3):
        renew = leased(store, f"j{number}")
        store.publish_cancel_notice([NoticeRequest(f"j{number}", 1)])
        store.release_lease([ReleaseLeaseRequest(f"j{number}", 1, renew.attempt_id)])
        store.clean_terminal_coordination([CleanRequest(f"j{number}", 1)])
    assert data.present() == {"permits"}
    assert list(data.raw.hkeys(data.key("permits"))) == ["@epoch"]


@pytest.mark.parametrize("newer", ["marker", "reservation", "notice", "progress"])
def test_cleaning_stops_before_anything_newer_than_the_read(
    store: CoordinationStore, data: Data, newer: str
) -> None:
    if newer == "marker":
        data.write("markers", "j1", marker_fact(data, expected_token=3))
    elif newer == "reservation":
        reserved(store, "j1", 3)
    elif newer == "notice":
        store.publish_cancel_notice([NoticeRequest("j1", 2)])
    else:
        leased(store, "j1", 2)
    before = store.snapshot(["j1"]).facts["j1"].record
    assert store.clean_terminal_coordination([CleanRequest("j1", 1)]) == [CleanReply.NEWER_THAN_READ]
    after = store.snapshot(["j1"]).facts["j1"].record
    assert (after.queued, after.reservation, after.cancel_notice, after.live_progress_token) == (
        before.queued,
        before.reservation,
        before.cancel_notice,
        before.live_progress_token,
    )
    assert store.clean_terminal_coordination([CleanRequest("j1", TOKEN_MAX)]) == [CleanReply.CLEANED]


def test_a_job_whose_name_is_no_text_can_be_looked_at_and_cleaned_away(
    store: CoordinationStore, data: Data
) -> None:
    data.write("markers", "j\udcff", marker_fact(data))
    [name] = store.scan_jobs("markers:0").job_ids
    assert store.snapshot([name]).facts[name].marker is not None
    assert store.clean_terminal_coordination([CleanRequest(name, TOKEN_MAX)]) == [CleanReply.CLEANED]


def test_a_batch_larger_than_a_chunk_is_answered_in_order(store: CoordinationStore) -> None:
    renewals = [leased(store, f"j{number}") for number in range(120)]
    store.publish_cancel_notice([NoticeRequest(f"j{number}", 1) for number in range(0, 120, 7)])
    beats = [
        Heartbeat(renew, report(renew.job_id, 1, number) if number % 3 == 0 else None)
        for number, renew in enumerate(renewals)
    ]
    answers = store.heartbeat(beats)
    assert [answer.cancel_notice for answer in answers] == [number % 7 == 0 for number in range(120)]
    assert [answer.report is not None for answer in answers] == [number % 3 == 0 for number in range(120)]


@pytest.mark.parametrize(
    "request_made",
    [
        EnqueueRequest("", 1, QUEUE),
        EnqueueRequest("j\0", 1, QUEUE),
        EnqueueRequest("j", 1, "q\0"),
        EnqueueRequest("j", 1, "q" * 513),
        EnqueueRequest("j\ud800", 1, QUEUE),
        EnqueueRequest("j", 0, QUEUE),
        EnqueueRequest("j", TOKEN_MAX + 1, QUEUE),
        EnqueueRequest("j", True, QUEUE),
        EnqueueRequest("j", 1.5, QUEUE),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_written_down_is_refused_before_anything_is_sent(
    store: CoordinationStore, data: Data, request_made: EnqueueRequest
) -> None:
    with pytest.raises(CoordinationMisuse):
        store.enqueue([EnqueueRequest("good", 1, QUEUE), request_made])
    assert data.present() == set()
