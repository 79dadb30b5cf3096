-- The protocol's rules that a CHECK of one row cannot say, under the names of the module's invariants and properties.
-- They hold for every client: there is no setting that turns one off (TRUNCATE alone has one, for tests).

CREATE FUNCTION remora_refuse(rule text, what text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '%: %', rule, what USING ERRCODE = 'check_violation', CONSTRAINT = rule;
END $$;

-- Jobs ----------------------------------------------------------------------------------------------------------------

CREATE FUNCTION remora_job_insert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.phase, NEW.cancel_requested, NEW.current_token, NEW.authority, NEW.dispatch_needed, NEW.committed,
        NEW.checkpoint, NEW.checkpoint_valid) IS DISTINCT FROM ('Queued', false, 0, 0, true, 0, 0::bigint, false) THEN
        PERFORM remora_refuse('Init', format('job %s is not accepted as a queued job without attempts', NEW.id));
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER rule_insert BEFORE INSERT ON jobs_job FOR EACH ROW EXECUTE FUNCTION remora_job_insert();

-- Fires only for statements that name these columns, so that a large spec is not compared at each step of its job.
CREATE FUNCTION remora_job_accepted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.id, NEW.kind, NEW.spec, NEW.spec_digest, NEW.request_digest, NEW.idempotency_key, NEW.created_at)
        IS DISTINCT FROM
       (OLD.id, OLD.kind, OLD.spec, OLD.spec_digest, OLD.request_digest, OLD.idempotency_key, OLD.created_at) THEN
        PERFORM remora_refuse('AcceptedJobIsImmutable', format('job %s stays what was accepted', OLD.id));
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER rule_accepted
    BEFORE UPDATE OF id, kind, spec, spec_digest, request_digest, idempotency_key, created_at ON jobs_job
    FOR EACH ROW EXECUTE FUNCTION remora_job_accepted();

CREATE FUNCTION remora_job_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.phase IN ('Succeeded', 'Failed', 'Cancelled')
        AND (NEW.phase, NEW.cancel_requested, NEW.current_token, NEW.authority, NEW.dispatch_needed, NEW.committed,
             NEW.checkpoint, NEW.checkpoint_valid, NEW.finished_at)
            IS DISTINCT FROM
            (OLD.phase, OLD.cancel_requested, OLD.current_token, OLD.authority, OLD.dispatch_needed, OLD.committed,
             OLD.checkpoint, OLD.checkpoint_valid, OLD.finished_at) THEN
        PERFORM remora_refuse('TerminalStateIsImmutable', format('job %s is %s', OLD.id, OLD.phase));
    END IF;
    IF NEW.current_token NOT IN (OLD.current_token, OLD.current_token + 1) THEN
        PERFORM remora_refuse('FencingTokensMonotonic',
            format('token of job %s goes from %s to %s', OLD.id, OLD.current_token, NEW.current_token));
    END IF;
    IF NEW.current_token <> OLD.current_token AND NOT (OLD.phase = 'Queued' AND NEW.phase = 'Running') THEN
        PERFORM remora_refuse('FencingTokensMonotonic',
            format('a token of job %s is allocated from %s to %s', OLD.id, OLD.phase, NEW.phase));
    END IF;
    IF OLD.cancel_requested AND NOT NEW.cancel_requested THEN
        PERFORM remora_refuse('CancellationSafety', format('the cancel of job %s is withdrawn', OLD.id));
    END IF;
    IF NEW.committed <> OLD.committed AND NOT (OLD.committed = 0 AND OLD.phase = 'Running'
            AND OLD.authority = NEW.committed AND OLD.current_token = NEW.committed AND NOT OLD.cancel_requested
            AND EXISTS (SELECT FROM jobs_attempt WHERE job_id = OLD.id AND token = NEW.committed
                        AND stage_state = 'StageComplete')) THEN
        PERFORM remora_refuse('CommitIsFencedCAS',
            format('job %s (%s, authority %s) commits attempt %s', OLD.id, OLD.phase, OLD.authority, NEW.committed));
    END IF;
    IF NEW.phase <> OLD.phase AND (OLD.phase, NEW.phase) NOT IN (
            ('Queued', 'Running'), ('Queued', 'Cancelled'),
            ('Running', 'RetryWait'), ('Running', 'Failed'), ('Running', 'Succeeded'), ('Running', 'Cancelling'),
            ('RetryWait', 'Queued'), ('RetryWait', 'Cancelled'), ('Cancelling', 'Cancelled')) THEN
        PERFORM remora_refuse('PhaseStep', format('job %s goes from %s to %s', OLD.id, OLD.phase, NEW.phase));
    END IF;
    IF NEW.phase = 'Running' AND OLD.phase = 'Queued' AND NEW.current_token = OLD.current_token THEN
        PERFORM remora_refuse('AuthorityWellFormed', format('job %s runs without a new token', OLD.id));
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER rule_update BEFORE UPDATE ON jobs_job FOR EACH ROW EXECUTE FUNCTION remora_job_update();

CREATE FUNCTION remora_job_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.phase NOT IN ('Succeeded', 'Failed', 'Cancelled') THEN
        PERFORM remora_refuse('AcceptedJobIsNotLost', format('job %s is %s', OLD.id, OLD.phase));
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER rule_delete BEFORE DELETE ON jobs_job FOR EACH ROW EXECUTE FUNCTION remora_job_delete();

-- Judged at COMMIT, on what the row is then: its attempt and its result are written by other statements.
CREATE FUNCTION remora_job_at_commit() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    job jobs_job%ROWTYPE;
BEGIN
    SELECT * INTO job FROM jobs_job WHERE id = NEW.id;
    IF NOT FOUND THEN RETURN NULL; END IF;
    IF job.current_token > 0
        AND NOT EXISTS (SELECT FROM jobs_attempt WHERE job_id = job.id AND token = job.current_token) THEN
        PERFORM remora_refuse('AllocatedTokensUsed',
            format('token %s of job %s has no attempt', job.current_token, job.id));
    END IF;
    IF job.authority > 0 AND NOT EXISTS (SELECT FROM jobs_attempt WHERE job_id = job.id AND token = job.authority
            AND state IN ('AttemptAuthorized', 'AttemptExecuting', 'AttemptStopped')) THEN
        PERFORM remora_refuse('AuthorityWellFormed', format('authority %s of job %s', job.authority, job.id));
    END IF;
    IF job.committed > 0 AND NOT EXISTS (
            SELECT FROM jobs_attempt AS attempt JOIN jobs_committedresult AS result ON result.attempt_id = attempt.id
            WHERE attempt.job_id = job.id AND attempt.token = job.committed
              AND attempt.state = 'AttemptCommitted' AND attempt.stage_state = 'StageComplete'
              AND result.job_id = job.id AND result.token = job.committed) THEN
        PERFORM remora_refuse('CommittedResultConsistent',
            format('job %s commits token %s without its result', job.id, job.committed));
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER rule_at_commit AFTER UPDATE OF current_token, authority, committed ON jobs_job
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION remora_job_at_commit();

-- Attempts ------------------------------------------------------------------------------------------------------------

CREATE FUNCTION remora_attempt_insert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.state <> 'AttemptAuthorized' OR NEW.pending_outcome <> 'NoOutcome' OR NEW.progress <> NEW.initial_progress
        OR NEW.stage_state NOT IN ('StageNone', 'StagePartial') THEN
        PERFORM remora_refuse('AttemptStep', format('attempt %s of job %s is not born authorised', NEW.token, NEW.job_id));
    END IF;
    IF NOT EXISTS (SELECT FROM jobs_workerincarnation WHERE id = NEW.worker_id AND state = 'WorkerUp') THEN
        PERFORM remora_refuse('IncarnationDownIsPermanent', format('incarnation %s is not Up', NEW.worker_id));
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER rule_insert BEFORE INSERT ON jobs_attempt FOR EACH ROW EXECUTE FUNCTION remora_attempt_insert();

CREATE FUNCTION remora_attempt_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.id, NEW.job_id, NEW.token, NEW.worker_id, NEW.initial_progress, NEW.resumed_from_checkpoint, NEW.kind,
        NEW.spec_digest, NEW.stage_location, NEW.authorized_at) IS DISTINCT FROM
       (OLD.id, OLD.job_id, OLD.token, OLD.worker_id, OLD.initial_progress, OLD.resumed_from_checkpoint, OLD.kind,
        OLD.spec_digest, OLD.stage_location, OLD.authorized_at) THEN
        PERFORM remora_refuse('EnvelopeIsImmutable', format('attempt %s of job %s', OLD.token, OLD.job_id));
    END IF;
    IF NEW.state <> OLD.state AND (OLD.state, NEW.state) NOT IN (
            ('AttemptAuthorized', 'AttemptExecuting'), ('AttemptAuthorized', 'AttemptStopped'),
            ('AttemptExecuting', 'AttemptStopped'), ('AttemptExecuting', 'AttemptCommitted')) THEN
        PERFORM remora_refuse('AttemptStep',
            format('attempt %s of job %s goes from %s to %s', OLD.token, OLD.job_id, OLD.state, NEW.state));
    END IF;
    IF NEW.progress <> OLD.progress AND (NEW.progress < OLD.progress OR OLD.state <> 'AttemptExecuting') THEN
        PERFORM remora_refuse('ResumeValidity',
            format('progress of attempt %s of job %s goes from %s to %s', OLD.token, OLD.job_id, OLD.progress, NEW.progress));
    END IF;
    IF NEW.stage_state <> OLD.stage_state AND (OLD.stage_state, NEW.stage_state) NOT IN (
            ('StageNone', 'StagePartial'), ('StageNone', 'StageComplete'), ('StagePartial', 'StageComplete'),
            ('StagePartial', 'StageCleaned'), ('StageComplete', 'StageCleaned')) THEN
        PERFORM remora_refuse('StagingOwnership',
            format('stage of attempt %s of job %s goes from %s to %s', OLD.token, OLD.job_id, OLD.stage_state, NEW.stage_state));
    END IF;
    IF NEW.stage_state = 'StageCleaned' AND OLD.stage_state <> 'StageCleaned' AND (
            EXISTS (SELECT FROM jobs_job WHERE id = OLD.job_id AND OLD.token IN (committed, authority))
            OR NOT (OLD.state = 'AttemptStopped' OR EXISTS (
                SELECT FROM jobs_workerincarnation WHERE id = OLD.worker_id AND state = 'WorkerDown'))) THEN
        PERFORM remora_refuse('StagingOwnership',
            format('stage of attempt %s of job %s is cleaned while it may be used', OLD.token, OLD.job_id));
    END IF;
    IF NEW.pending_outcome <> OLD.pending_outcome
        AND 'NoOutcome' NOT IN (NEW.pending_outcome, OLD.pending_outcome) THEN
        PERFORM remora_refuse('AttemptStep',
            format('attempt %s of job %s has sent an outcome already', OLD.token, OLD.job_id));
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER rule_update BEFORE UPDATE ON jobs_attempt FOR EACH ROW EXECUTE FUNCTION remora_attempt_update();

CREATE FUNCTION remora_attempt_at_commit() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    job jobs_job%ROWTYPE;
BEGIN
    SELECT * INTO job FROM jobs_job WHERE id = NEW.job_id;
    IF NOT FOUND THEN RETURN NULL; END IF;
    IF NEW.token > job.current_token THEN
        PERFORM remora_refuse('StateConsistency', format('token %s of job %s was not allocated', NEW.token, job.id));
    END IF;
    IF NEW.state = 'AttemptCommitted' AND job.committed <> NEW.token THEN
        PERFORM remora_refuse('CommittedResultConsistent',
            format('attempt %s of job %s is committed, the job commits %s', NEW.token, job.id, job.committed));
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER rule_at_commit AFTER INSERT OR UPDATE OF state, token ON jobs_attempt
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION remora_attempt_at_commit();

-- Committed results, members, journal: written once -------------------------------------------------------------------

CREATE FUNCTION remora_written_once() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM remora_refuse(TG_ARGV[0], format('a row of %s is written once', TG_TABLE_NAME));
    RETURN NULL;
END $$;
CREATE TRIGGER rule_update BEFORE UPDATE ON jobs_committedresult
    FOR EACH ROW EXECUTE FUNCTION remora_written_once('CommittedResultIsImmutable');
CREATE TRIGGER rule_update BEFORE UPDATE ON jobs_stagedmember
    FOR EACH ROW EXECUTE FUNCTION remora_written_once('StagedMemberIsImmutable');
CREATE TRIGGER rule_update BEFORE UPDATE ON jobs_protocolevent
    FOR EACH ROW EXECUTE FUNCTION remora_written_once('JournalIsAppendOnly');

CREATE FUNCTION remora_result_at_commit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM jobs_job WHERE id = NEW.job_id AND committed <> NEW.token) THEN
        PERFORM remora_refuse('CommittedResultConsistent',
            format('a result of attempt %s, which job %s does not commit', NEW.token, NEW.job_id));
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER rule_at_commit AFTER INSERT ON jobs_committedresult
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION remora_result_at_commit();

-- What belongs to a job goes with the job, in the same transaction, or stays.
CREATE FUNCTION remora_goes_with_job() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM jobs_job WHERE id = OLD.job_id) THEN
        PERFORM remora_refuse(TG_ARGV[0], format('a row of %s is deleted, its job %s is not', TG_TABLE_NAME, OLD.job_id));
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER rule_delete AFTER DELETE ON jobs_attempt
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION remora_goes_with_job('AllocatedTokensUsed');
CREATE CONSTRAINT TRIGGER rule_delete AFTER DELETE ON jobs_committedresult
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION remora_goes_with_job('CommittedResultConsistent');
CREATE CONSTRAINT TRIGGER rule_delete AFTER DELETE ON jobs_protocolevent
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (OLD.job_id IS NOT NULL)
    EXECUTE FUNCTION remora_goes_with_job('JournalIsAppendOnly');

CREATE FUNCTION remora_incarnation_event_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM jobs_workerincarnation WHERE id = OLD.incarnation) THEN
        PERFORM remora_refuse('JournalIsAppendOnly', format('incarnation %s is still known', OLD.incarnation));
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER rule_delete_incarnation AFTER DELETE ON jobs_protocolevent
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (OLD.job_id IS NULL)
    EXECUTE FUNCTION remora_incarnation_event_delete();

-- Worker incarnations -------------------------------------------------------------------------------------------------

CREATE FUNCTION remora_incarnation_update() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.state = 'WorkerDown' OR (NEW.id, NEW.host, NEW.pid, NEW.started_at)
            IS DISTINCT FROM (OLD.id, OLD.host, OLD.pid, OLD.started_at) THEN
        PERFORM remora_refuse('IncarnationDownIsPermanent', format('incarnation %s is %s', OLD.id, OLD.state));
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER rule_update BEFORE UPDATE ON jobs_workerincarnation
    FOR EACH ROW EXECUTE FUNCTION remora_incarnation_update();

CREATE FUNCTION remora_incarnation_delete() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.state <> 'WorkerDown' THEN
        PERFORM remora_refuse('IncarnationDownIsPermanent', format('incarnation %s is %s', OLD.id, OLD.state));
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER rule_delete BEFORE DELETE ON jobs_workerincarnation
    FOR EACH ROW EXECUTE FUNCTION remora_incarnation_delete();

-- TRUNCATE passes by every row's rule. Tests empty their own database so, and say it when they connect.
CREATE FUNCTION remora_no_truncate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF coalesce(current_setting('remora.allow_truncate', true), '') <> 'on' THEN
        PERFORM remora_refuse('AcceptedJobIsNotLost', format('%s is not truncated', TG_TABLE_NAME));
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER rule_truncate BEFORE TRUNCATE ON jobs_job EXECUTE FUNCTION remora_no_truncate();
CREATE TRIGGER rule_truncate BEFORE TRUNCATE ON jobs_attempt EXECUTE FUNCTION remora_no_truncate();
CREATE TRIGGER rule_truncate BEFORE TRUNCATE ON jobs_committedresult EXECUTE FUNCTION remora_no_truncate();
CREATE TRIGGER rule_truncate BEFORE TRUNCATE ON jobs_stagedmember EXECUTE FUNCTION remora_no_truncate();
CREATE TRIGGER rule_truncate BEFORE TRUNCATE ON jobs_protocolevent EXECUTE FUNCTION remora_no_truncate();
CREATE TRIGGER rule_truncate BEFORE TRUNCATE ON jobs_workerincarnation EXECUTE FUNCTION remora_no_truncate();
