"""The audit: clean on what the store wrote, and not after any of the planted faults."""

# Statements are easier to compare on one line.
# ruff: noqa: E501

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connection, transaction

from jobs import audit, history, transitions
from jobs.ids import JobId
from jobs.transitions import CancelRequest, InvalidateRequest, StopReport
from jobs.values import SYSTEM
from tests.durable import driver

pytestmark = pytest.mark.django_db(transaction=True)

TABLES = ("job", "attempt", "committedresult", "stagedmember", "protocolevent", "workerincarnation")


@contextmanager
def without_rules() -> Iterator[None]:
    """As somebody would who owns the database: the triggers are off, and on again."""
    for what in ("DISABLE", "ENABLE"):
        with connection.cursor() as cursor:
            for table in TABLES:
                cursor.execute(f"ALTER TABLE jobs_{table} {what} TRIGGER USER")
        if what == "DISABLE":
            yield


@pytest.fixture
def lives() -> dict[str, JobId]:
    """Jobs whose histories take every durable action."""
    worker, dying = driver.start_worker(), driver.start_worker()
    jobs = {name: driver.accept() for name in ("succeeded", "resumed", "crashed", "cancelled", "waiting")}
    jobs["failed"] = driver.accept(max_failures=0)
    jobs["exhausted"] = driver.accept(max_attempts=1)
    driver.succeed(jobs["succeeded"], worker)
    first = driver.run(jobs["resumed"], worker)
    driver.checkpoint(first, 40, driver.member("a"))
    driver.reap(first)
    driver.settle(driver.success(first))  # rejected, and stopped
    driver.retry_now(jobs["resumed"])
    second = driver.run(jobs["resumed"], worker)
    transitions.invalidate_checkpoint([InvalidateRequest(jobs["resumed"], "changed", 2)])
    driver.settle(driver.success(second))
    transitions.cleanup_stage([first])
    driver.run(jobs["crashed"], dying)
    transitions.declare_down([dying], why="gone")
    driver.settle(driver.failure(driver.run(jobs["failed"], worker)))
    driver.settle(driver.failure(driver.run(jobs["exhausted"], worker)))
    driver.settle(driver.failure(driver.run(jobs["waiting"], worker)))
    running = driver.run(jobs["cancelled"], worker)
    transitions.request_cancel([CancelRequest(jobs["cancelled"])], actor=SYSTEM)
    transitions.finalize_cancel([jobs["cancelled"]])
    transitions.cooperative_stop([StopReport(running)])
    return jobs


def test_the_history_of_every_action_is_clean(lives: dict[str, JobId]) -> None:
    report = audit.audit()
    assert (report.clean, report.broken) == (True, [])
    assert report.jobs == len(lives)
    assert {
        *(
            "Init",
            "StartIncarnation",
            "AuthorizeAttempt",
            "ActivateAttempt",
            "AdvanceAttempt",
            "PersistCheckpoint",
        ),
        *("ReapLostAttempt", "SendOutcome", "RejectOutcome", "CooperativeStop", "ScheduleRetry"),
        *("InvalidateCheckpoint", "AcceptSuccess", "CleanupStage", "CrashWorker", "AcceptPermanentFailure"),
        *(
            "AcceptRetryableFailureExhausted",
            "AcceptRetryableFailureWithBudget",
            "RequestCancel",
            "FinalizeCancel",
        ),
    } == set(report.coverage)


def test_one_jobs_history_alone_can_be_audited(lives: dict[str, JobId]) -> None:
    report = audit.audit([lives["resumed"]])
    assert report.clean
    assert report.jobs == 1


def test_small_pages_find_the_same(lives: dict[str, JobId], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = audit.audit()
    monkeypatch.setattr(audit, "JOBS_PER_PAGE", 2)
    monkeypatch.setattr(audit, "EVENTS_PER_PAGE", 3)
    paged = audit.audit()
    assert (paged.rows, paged.jobs, paged.coverage) == (whole.rows, whole.jobs, whole.coverage)
    assert paged.clean


FAULTS = {
    "a terminal job is revived": "UPDATE jobs_job SET phase = 'Queued', dispatch_needed = true, finished_at = NULL"
    " WHERE id = {failed}",
    "a token is raised": "UPDATE jobs_job SET current_token = 2 WHERE id = {waiting}",
    "a result is swapped for an older attempt's": "UPDATE jobs_committedresult SET token = 1 WHERE job_id = {resumed}",
    "a result is gone": "DELETE FROM jobs_committedresult WHERE job_id = {succeeded}",
    "an attempt is gone": "DELETE FROM jobs_attempt WHERE job_id = {waiting}",
    "an attempt's state is edited": "UPDATE jobs_attempt SET state = 'AttemptExecuting' WHERE job_id = {waiting}",
    "a checkpoint is moved on": "UPDATE jobs_job SET checkpoint = 99 WHERE id = {crashed}",
    "a step is gone": "DELETE FROM jobs_protocolevent WHERE job_id = {resumed} AND action = 'ReapLostAttempt'",
    "the last step is gone": "DELETE FROM jobs_protocolevent WHERE job_id = {succeeded} AND action = 'AcceptSuccess'",
    "the whole history is gone": "DELETE FROM jobs_protocolevent WHERE job_id = {failed}",
    "two steps are swapped": "UPDATE jobs_protocolevent SET seq = -seq WHERE job_id = {succeeded} AND action IN"
    " ('SendOutcome', 'AcceptSuccess'); UPDATE jobs_protocolevent SET seq = (SELECT -sum(seq) FROM jobs_protocolevent"
    " WHERE seq < 0) + seq WHERE seq < 0",
    "a step is there twice": "INSERT INTO jobs_protocolevent (action, job_id, token, actor_kind, actor_id, params,"
    " observed, before, after) SELECT action, job_id, token, actor_kind, actor_id, params, observed, before, after"
    " FROM jobs_protocolevent WHERE job_id = {succeeded} AND action = 'AcceptSuccess'",
    "a step has another name": "UPDATE jobs_protocolevent SET action = 'AcceptPermanentFailure' WHERE job_id = {succeeded}"
    " AND action = 'AcceptSuccess'",
    "a step has a name that no action has": "UPDATE jobs_protocolevent SET action = 'Fix' WHERE job_id = {failed}"
    " AND action = 'ActivateAttempt'",
    "a step changed something else": "UPDATE jobs_protocolevent SET after = after || '{{\"job.checkpoint\": 7}}'"
    " WHERE job_id = {resumed} AND action = 'PersistCheckpoint'",
    "a step was another attempt's": "UPDATE jobs_protocolevent SET token = 1 WHERE job_id = {resumed}"
    " AND action = 'AcceptSuccess'",
    "the reaper saw a live lease": "UPDATE jobs_protocolevent SET observed = '{{\"coordination\": {{\"leases\":"
    " [{{\"token\": 1, \"state\": \"LeaseLive\", \"age\": 0}}]}}}}' WHERE job_id = {resumed} AND action = 'ReapLostAttempt'",
    "the reservation was another worker's": "UPDATE jobs_protocolevent SET observed = jsonb_set(observed,"
    " '{{coordination,reservation}}', '\"another\"') WHERE job_id = {resumed} AND action = 'AuthorizeAttempt'",
    "an attempt was given to a dead incarnation": "UPDATE jobs_protocolevent SET seq = -1 WHERE action = 'StartIncarnation'"
    " AND incarnation = (SELECT worker_id FROM jobs_attempt WHERE job_id = {crashed});"
    " UPDATE jobs_protocolevent SET seq = 0 WHERE action = 'CrashWorker' AND job_id IS NULL",
    "a dead incarnation is up again": "UPDATE jobs_workerincarnation SET state = 'WorkerUp', declared_down_at = NULL",
    "a history has no job": "DELETE FROM jobs_committedresult WHERE job_id = {succeeded};"
    " DELETE FROM jobs_attempt WHERE job_id = {succeeded}; DELETE FROM jobs_job WHERE id = {succeeded}",
    "a row cannot be read": "UPDATE jobs_protocolevent SET params = '{{}}' WHERE job_id = {succeeded}"
    " AND action = 'SendOutcome'",
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(lives: dict[str, JobId], fault: str) -> None:
    names = {name: f"'{job_id}'" for name, job_id in lives.items()}
    with without_rules(), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(FAULTS[fault].format(**names))
        assert cursor.rowcount > 0, "nothing was planted"
    report = audit.audit()
    assert not report.clean
    assert report.first is not None


def test_the_first_broken_step_is_told(lives: dict[str, JobId]) -> None:
    with without_rules(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM jobs_protocolevent WHERE action = 'AuthorizeAttempt' AND token = 1")
    first = audit.audit().first
    assert first is not None
    assert (first.action, first.token) == ("ActivateAttempt", 1)
    assert "NO_SUCH_ATTEMPT" in first.what


def test_a_ledger_that_differs_makes_the_audit_unclean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "_ledger_checks", {})
    audit.register_ledger_check("stages", lambda: iter(["/area/1 is recorded and not there"]))
    report = audit.audit()
    assert (report.clean, report.ledgers) == (False, {"stages": 1})


def test_the_export_speaks_the_modules_words(lives: dict[str, JobId]) -> None:
    out = io.StringIO()
    count = history.export(out, lives["succeeded"])
    steps = [json.loads(line) for line in out.getvalue().splitlines()]
    assert count == len(steps)
    assert [step["action"] for step in steps] == [
        *("Init", "AuthorizeAttempt", "ActivateAttempt", "AdvanceAttempt", "SendOutcome", "AcceptSuccess")
    ]
    authorize, commit = steps[1], steps[-1]
    assert authorize["before"]["attemptState"] == {"1": "AttemptUnused"}
    assert authorize["before"]["authority"] == "NoAttempt"
    assert authorize["after"]["attemptState"] == {"1": "AttemptAuthorized"}
    assert (commit["before"]["committedAttempt"], commit["after"]["committedAttempt"]) == ("NoAttempt", 1)
    assert commit["after"]["phase"] == "Succeeded"
    assert {"seq", "at", "action", "job", "token", "incarnation", "before", "after"} <= set(commit)
