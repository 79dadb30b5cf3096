"""No UPDATE, from any client, breaks the protocol's rules: each is tried in raw SQL and refused by name."""

# Statements are easier to compare on one line.
# ruff: noqa: E501

from __future__ import annotations

from dataclasses import dataclass

import pytest
from django.db import IntegrityError, connection, transaction

from jobs import transitions
from jobs.errors import ProtocolBypassed
from jobs.models import Attempt, CommittedResult, Job, ProtocolEvent
from jobs.transitions import CancelRequest
from jobs.values import SYSTEM
from tests.durable import driver

pytestmark = pytest.mark.django_db(transaction=True)


@dataclass(frozen=True)
class World:
    """One job in each phase, on one worker that is Up; and one worker that is Down."""

    names: dict[str, str]

    def fill(self, statement: str) -> str:
        return statement.format(**self.names)


@pytest.fixture
def world() -> World:
    worker, down = driver.start_worker(), driver.start_worker()
    transitions.declare_down([down], why="gone")
    jobs = {name: driver.accept() for name in ("queued", "running", "authorized", "waiting", "succeeded")}
    jobs |= {name: driver.accept(max_attempts=2) for name in ("failed", "cancelling", "cancelled", "lost")}
    driver.checkpoint(driver.run(jobs["running"], worker), 50, driver.member("a"))
    driver.authorize(jobs["authorized"], worker)
    driver.settle(driver.failure(driver.run(jobs["waiting"], worker)))
    driver.succeed(jobs["succeeded"], worker)
    for _ in range(2):
        driver.settle(driver.failure(driver.run(jobs["failed"], worker)))
        driver.retry_now(jobs["failed"])
    driver.run(jobs["cancelling"], worker)
    cancels = [CancelRequest(jobs[name]) for name in ("cancelling", "cancelled")]
    transitions.request_cancel(cancels, actor=SYSTEM)
    driver.reap(driver.run(jobs["lost"], worker))
    names = {name: f"'{job_id}'" for name, job_id in jobs.items()}
    return World(names | {"worker": f"'{worker}'", "down": f"'{down}'"})


VIOLATIONS = [
    # (what it is about, statement, rule or constraint that refuses it)
    ("state_consistency__phase", "UPDATE jobs_job SET phase = 'Done' WHERE id = {queued}", "PhaseStep"),
    ("StateConsistency", "UPDATE jobs_job SET authority = 0 WHERE id = {running}", "state_consistency__authority"),
    ("StateConsistency", "UPDATE jobs_job SET authority = 1 WHERE id = {waiting}", "state_consistency__authority"),
    ("StateConsistency", "UPDATE jobs_job SET cancel_requested = true WHERE id = {running}", "state_consistency__cancel"),
    ("StateConsistency", "UPDATE jobs_job SET dispatch_needed = false WHERE id = {queued}", "state_consistency__dispatch"),
    ("StateConsistency", "UPDATE jobs_job SET committed = 1 WHERE id = {running}", "CommitIsFencedCAS"),
    ("StateConsistency", "INSERT INTO jobs_attempt (id, job_id, token, worker_id, stage_location, kind, spec_digest)"
     " VALUES (gen_random_uuid(), {queued}, 1, {worker}, '/x', 'probe', '0')", "StateConsistency"),
    ("PhaseStep", "UPDATE jobs_job SET phase = 'Failed', finished_at = now() WHERE id = {queued}", "PhaseStep"),
    ("PhaseStep", "UPDATE jobs_job SET phase = 'Queued', authority = 0, dispatch_needed = true WHERE id = {running}", "PhaseStep"),
    ("AuthorityWellFormed", "UPDATE jobs_job SET phase = 'Running', authority = 0 WHERE id = {queued}", "AuthorityWellFormed"),
    ("AuthorityWellFormed", "UPDATE jobs_job SET authority = 2 WHERE id = {running}", "authority_well_formed"),
    ("AllocatedTokensUsed", "UPDATE jobs_job SET phase = 'Running', current_token = 1, authority = 1,"
     " dispatch_needed = false WHERE id = {queued}", "AllocatedTokensUsed"),
    ("AllocatedTokensUsed", "DELETE FROM jobs_attempt WHERE job_id = {failed} AND token = 1", "AllocatedTokensUsed"),
    ("CommittedResultConsistent", "UPDATE jobs_attempt SET state = 'AttemptCommitted', stage_state = 'StageComplete',"
     " progress = 51, progress_max = 51 WHERE job_id = {running}", "CommittedResultConsistent"),
    ("CommittedResultConsistent", "WITH a AS (UPDATE jobs_attempt SET stage_state = 'StageComplete', progress = 51,"
     " progress_max = 51 WHERE job_id = {running} RETURNING id) SELECT 1 FROM a;"
     " UPDATE jobs_job SET phase = 'Succeeded', authority = 0, committed = 1, finished_at = now() WHERE id = {running}",
     "CommittedResultConsistent"),
    ("CommittedResultConsistent", "DELETE FROM jobs_committedresult WHERE job_id = {succeeded}", "CommittedResultConsistent"),
    ("CommittedResultConsistent", "INSERT INTO jobs_committedresult (job_id, attempt_id, token, manifest_digest,"
     " manifest_size, members, bytes, location) SELECT job_id, id, token, '', 0, 0, 0, '' FROM jobs_attempt"
     " WHERE job_id = {running}", "CommittedResultConsistent"),
    ("CommittedResultConsistent", "UPDATE jobs_committedresult SET manifest_digest = 'other'", "CommittedResultIsImmutable"),
    ("CancellationSafety", "UPDATE jobs_job SET phase = 'Succeeded', authority = 0, committed = 1, finished_at = now()"
     " WHERE id = {cancelling}", "CommitIsFencedCAS"),
    ("CancellationSafety", "UPDATE jobs_job SET cancel_requested = false WHERE id = {cancelling}", "CancellationSafety"),
    ("TerminalStateIsImmutable", "UPDATE jobs_job SET phase = 'Queued', dispatch_needed = true, finished_at = NULL"
     " WHERE id = {failed}", "TerminalStateIsImmutable"),
    ("TerminalStateIsImmutable", "UPDATE jobs_job SET phase = 'Failed' WHERE id = {succeeded}", "TerminalStateIsImmutable"),
    ("TerminalStateIsImmutable", "UPDATE jobs_job SET checkpoint = 0 WHERE id = {succeeded}", "TerminalStateIsImmutable"),
    ("TerminalStateIsImmutable", "UPDATE jobs_job SET cancel_requested = false WHERE id = {cancelled}", "TerminalStateIsImmutable"),
    ("TerminalStateIsImmutable", "UPDATE jobs_job SET committed = 2 WHERE id = {succeeded}", "TerminalStateIsImmutable"),
    ("FencingTokensMonotonic", "UPDATE jobs_job SET current_token = 0 WHERE id = {waiting}", "FencingTokensMonotonic"),
    ("FencingTokensMonotonic", "UPDATE jobs_job SET current_token = current_token + 2 WHERE id = {waiting}", "FencingTokensMonotonic"),
    ("FencingTokensMonotonic", "UPDATE jobs_job SET current_token = current_token + 1 WHERE id = {waiting}", "FencingTokensMonotonic"),
    ("CommitIsFencedCAS", "UPDATE jobs_job SET phase = 'Succeeded', authority = 0, committed = 1, finished_at = now()"
     " WHERE id = {running}", "CommitIsFencedCAS"),
    ("CommitIsFencedCAS", "UPDATE jobs_job SET committed = 0, phase = 'Failed' WHERE id = {succeeded}", "TerminalStateIsImmutable"),
    ("attempt states", "UPDATE jobs_attempt SET state = 'AttemptExecuting' WHERE job_id = {waiting}", "AttemptStep"),
    ("attempt states", "UPDATE jobs_attempt SET state = 'AttemptStopped' WHERE job_id = {succeeded}", "AttemptStep"),
    ("attempt states", "UPDATE jobs_attempt SET state = 'AttemptCommitted', stage_state = 'StageComplete',"
     " progress_max = progress WHERE job_id = {authorized}", "AttemptStep"),
    ("attempt states", "UPDATE jobs_attempt SET worker_id = {down} WHERE job_id = {running}", "EnvelopeIsImmutable"),
    ("attempt states", "UPDATE jobs_attempt SET token = 7 WHERE job_id = {running}", "EnvelopeIsImmutable"),
    ("ResumeValidity", "UPDATE jobs_attempt SET progress = 1 WHERE job_id = {running}", "ResumeValidity"),
    ("ResumeValidity", "UPDATE jobs_attempt SET progress = 99 WHERE job_id = {waiting}", "ResumeValidity"),
    ("ResumeValidity", "UPDATE jobs_job SET checkpoint = 9, checkpoint_valid = true WHERE id = {queued}", "ResumeValidity"),
    ("ResumeValidity", "UPDATE jobs_job SET checkpoint_valid = true WHERE id = {waiting}", "ResumeValidity"),
    ("ResumeValidity", "UPDATE jobs_job SET checkpoint = 99 WHERE id = {running}", "ResumeValidity"),
    ("ResumeValidity", "UPDATE jobs_job SET checkpoint_token = 0 WHERE id = {running}", "ResumeValidity"),
    ("StagingOwnership", "UPDATE jobs_attempt SET stage_state = 'StageCleaned' WHERE job_id = {running}", "StagingOwnership"),
    ("StagingOwnership", "UPDATE jobs_attempt SET stage_state = 'StageCleaned' WHERE job_id = {succeeded}", "StagingOwnership"),
    ("StagingOwnership", "UPDATE jobs_stagedmember SET sha256 = 'other'", "StagedMemberIsImmutable"),
    ("token once", "INSERT INTO jobs_attempt (id, job_id, token, worker_id, stage_location, kind, spec_digest)"
     " VALUES (gen_random_uuid(), {running}, 1, {worker}, '/x', 'probe', '0')", "attempt__token_once_per_job"),
    ("Down is permanent", "UPDATE jobs_workerincarnation SET state = 'WorkerUp', declared_down_at = NULL WHERE id = {down}",
     "IncarnationDownIsPermanent"),
    ("Down is permanent", "INSERT INTO jobs_attempt (id, job_id, token, worker_id, stage_location, kind, spec_digest)"
     " VALUES (gen_random_uuid(), {waiting}, 2, {down}, '/x', 'probe', '0')", "IncarnationDownIsPermanent"),
    ("Down is permanent", "DELETE FROM jobs_workerincarnation WHERE id = {worker}", "IncarnationDownIsPermanent"),
    ("journal", "UPDATE jobs_protocolevent SET action = 'AcceptSuccess' WHERE job_id = {failed}", "JournalIsAppendOnly"),
    ("journal", "DELETE FROM jobs_protocolevent WHERE job_id = {failed}", "JournalIsAppendOnly"),
    ("journal", "DELETE FROM jobs_protocolevent WHERE incarnation = {worker} AND job_id IS NULL", "JournalIsAppendOnly"),
    ("accepted", "UPDATE jobs_job SET spec = '{{}}'::jsonb WHERE id = {queued}", "AcceptedJobIsImmutable"),
    ("accepted", "DELETE FROM jobs_job WHERE id = {queued}", "AcceptedJobIsNotLost"),
    ("accepted", "INSERT INTO jobs_job (id, kind, spec, spec_digest, request_digest, max_attempts, max_failures, max_losses,"
     " backoff_base_s, backoff_cap_s, phase, authority, current_token) VALUES (gen_random_uuid(), 'probe', '{{}}', '0',"
     " '0', 1, 1, 1, 1, 1, 'Running', 1, 1)", "Init"),
]  # fmt: skip


def execute(*statements: str) -> None:
    """These in one transaction, which is committed: some rules are judged only then."""
    with transaction.atomic(), connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        assert cursor.rowcount != 0, "the statement found no row to violate"


@pytest.mark.parametrize(("about", "statement", "named"), VIOLATIONS)
def test_a_violating_write_is_refused_by_the_name_of_the_rule(
    world: World, about: str, statement: str, named: str
) -> None:
    with pytest.raises(IntegrityError, match=named):
        execute(world.fill(statement))


def test_no_temporary_table_stands_in_for_the_one_that_a_rule_reads(world: World) -> None:
    """A rule asks whether a committed attempt has its result; here the writer's own table would say yes."""
    shown = "CREATE TEMP TABLE jobs_attempt ON COMMIT DROP AS SELECT * FROM public.jobs_attempt"
    forged = "UPDATE pg_temp.jobs_attempt SET stage_state = 'StageComplete', state = 'AttemptCommitted'"
    result = (
        "CREATE TEMP TABLE jobs_committedresult ON COMMIT DROP AS SELECT job_id, id AS attempt_id, token"
        " FROM public.jobs_attempt"
    )
    commit = (
        "UPDATE public.jobs_job SET phase = 'Succeeded', authority = 0, committed = 1, finished_at = now()"
        " WHERE id = {running}"
    )
    with pytest.raises(IntegrityError, match="CommitIsFencedCAS"):
        execute(shown, forged, result, world.fill(commit), "SET CONSTRAINTS ALL IMMEDIATE")


TABLES = ["job", "attempt", "committedresult", "stagedmember", "protocolevent", "workerincarnation"]


@pytest.mark.parametrize("table", TABLES)
def test_truncate_is_refused_to_whoever_did_not_ask_for_it(table: str) -> None:
    with pytest.raises(IntegrityError, match="AcceptedJobIsNotLost"):
        execute("SET LOCAL remora.allow_truncate = 'off'", f"TRUNCATE jobs_{table} CASCADE")


def test_a_terminal_job_may_go_with_all_that_belongs_to_it(world: World) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        for table in ("committedresult", "attempt", "protocolevent"):
            cursor.execute(world.fill(f"DELETE FROM jobs_{table} WHERE job_id = {{succeeded}}"))  # noqa: S608
        cursor.execute(world.fill("DELETE FROM jobs_job WHERE id = {succeeded}"))
        assert cursor.rowcount == 1


def test_the_orm_only_reads(world: World) -> None:
    job = Job.objects.filter(phase="Failed").get()
    for write in (
        job.save,
        job.delete,
        lambda: Job.objects.update(phase="Queued"),
        lambda: Job.objects.create(kind="probe"),
        lambda: Attempt.objects.all().delete(),
        lambda: ProtocolEvent.objects.bulk_create([]),
        lambda: CommittedResult.objects.get_or_create(),
    ):
        with pytest.raises(ProtocolBypassed):
            write()
