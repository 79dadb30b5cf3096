"""Each sweep reads an index of its own: a million finished jobs do not slow the few that need something."""

# Statements are easier to compare on one line.
# ruff: noqa: E501

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobs import queries
from jobs.ids import new_id

pytestmark = pytest.mark.django_db(transaction=True)

# Straight into the tables: the plans depend on the numbers alone. What a sweep looks for is rare enough that no sample
# of the rows makes a scan of the whole table look as cheap as the index.
SEED = """
SET session_replication_role = replica;
INSERT INTO jobs_workerincarnation (id, host, pid, role, queues, kinds, concurrency, state, declared_down_at)
SELECT lpad(to_hex(n), 32, '0')::uuid, 'h', 1, 'compute', '{}', '{}', 1, 'WorkerDown', now()
FROM generate_series(1, 200) AS n;
INSERT INTO jobs_job (id, kind, spec, spec_digest, request_digest, max_attempts, max_failures, max_losses, backoff_base_s,
    backoff_cap_s, phase, current_token, authority, committed, dispatch_needed, finished_at, retry_at, cancel_requested)
SELECT lpad(to_hex(n), 32, '0')::uuid, 'probe', '{}', '0', '0', 9, 9, 9, 1, 1, phase, token,
    CASE WHEN phase IN ('Running', 'Cancelling') THEN 1 ELSE 0 END, CASE WHEN phase = 'Succeeded' THEN 1 ELSE 0 END,
    phase = 'Queued', CASE WHEN phase = 'Succeeded' THEN now() END,
    CASE WHEN phase = 'RetryWait' THEN now() + n * interval '1 second' - interval '20000 seconds' END,
    phase = 'Cancelling'
FROM (SELECT n, CASE WHEN n % 2000 = 0 THEN 'Running' WHEN n % 2001 = 0 THEN 'Queued' WHEN n % 2002 = 0 THEN 'RetryWait'
      WHEN n % 2003 = 0 THEN 'Cancelling' ELSE 'Succeeded' END AS phase FROM generate_series(1, 40000) AS n) AS jobs,
     LATERAL (SELECT CASE WHEN phase = 'Queued' THEN 0 ELSE 1 END AS token) AS tokens;
INSERT INTO jobs_attempt (id, job_id, token, worker_id, state, stage_state, progress, progress_max, stage_location, kind,
    spec_digest, pending_outcome)
SELECT id, id, 1, lpad(to_hex(1 + (row_number() OVER () % 200)), 32, '0')::uuid,
    CASE phase WHEN 'Succeeded' THEN 'AttemptCommitted' WHEN 'RetryWait' THEN 'AttemptStopped' ELSE 'AttemptExecuting' END,
    CASE phase WHEN 'Succeeded' THEN 'StageComplete' ELSE 'StagePartial' END, 1, 1, '/x', 'probe', '0',
    CASE phase WHEN 'Cancelling' THEN 'WantsSuccess' ELSE 'NoOutcome' END
FROM jobs_job WHERE current_token = 1;
SET session_replication_role = origin;
ANALYZE jobs_job; ANALYZE jobs_attempt; ANALYZE jobs_workerincarnation;
"""

SWEEPS: dict[str, tuple[Callable[[], Any], str]] = {
    "awaiting_dispatch": (lambda: queries.awaiting_dispatch(rows_max=50), "job_awaiting_dispatch"),
    "awaiting_dispatch, next page": (
        lambda: queries.awaiting_dispatch(rows_max=50, after=(0, queries.FIRST_ID)),
        "job_awaiting_dispatch",
    ),
    "running": (lambda: queries.running(rows_max=50), "job_running"),
    "due_retries": (lambda: queries.due_retries(rows_max=50), "job_due_retries"),
    "cancelling": (lambda: queries.cancelling(rows_max=50), "job_cancelling"),
    "stages_to_clean": (lambda: queries.stages_to_clean(rows_max=50), "attempt_stage_to_clean"),
    "outcomes_pending": (lambda: queries.outcomes_pending(rows_max=50), "attempt_outcome_pending"),
    "active_attempts": (lambda: queries.active_attempts(new_id()), "attempt_active_by_worker"),
}


@pytest.fixture
def _many_rows(transactional_db: None) -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute(SEED)
    yield
    connection.close()


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)


@pytest.mark.usefixtures("_many_rows")
def test_each_sweep_reads_its_own_partial_index() -> None:
    for sweep, (run, index) in SWEEPS.items():
        with CaptureQueriesContext(connection) as captured:
            found = run()
        statement = captured.captured_queries[-1]["sql"]
        with connection.cursor() as cursor:
            cursor.execute("EXPLAIN (FORMAT JSON) " + statement.replace("%", "%%"))
            answer = cursor.fetchone()[0]
        plan = (json.loads(answer) if isinstance(answer, str) else answer)[0]["Plan"]
        used = {node.get("Index Name") for node in nodes(plan)}
        scanned = {node.get("Relation Name") for node in nodes(plan) if node["Node Type"] == "Seq Scan"}
        assert index in used, (sweep, plan)
        assert not scanned & {"jobs_job", "jobs_attempt"}, (sweep, plan)
        assert found or sweep == "active_attempts", sweep
