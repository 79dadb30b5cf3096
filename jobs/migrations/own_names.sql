-- A rule reads the tables that it was made for. Without a path of its own a function looks for names first among the
-- temporary tables of whoever writes, who could so show it another jobs_attempt than the one it guards.
DO $$
DECLARE
    found record;
BEGIN
    FOR found IN SELECT oid::regprocedure AS signature FROM pg_proc
                 WHERE proname LIKE 'remora\_%' AND pronamespace = current_schema()::regnamespace LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', found.signature, current_schema());
    END LOOP;
END $$;

-- A checkpoint is what an attempt with authority has reached. Without this a job could be told to resume from what
-- nobody staged, and each attempt at it would end before it began.
CREATE FUNCTION remora_job_checkpoint() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (NEW.checkpoint, NEW.checkpoint_token, NEW.checkpoint_base) IS NOT DISTINCT FROM
       (OLD.checkpoint, OLD.checkpoint_token, OLD.checkpoint_base) AND (OLD.checkpoint_valid OR NOT NEW.checkpoint_valid) THEN
        RETURN NEW;
    END IF;
    IF OLD.phase <> 'Running' OR NEW.checkpoint_token <> OLD.authority OR NOT EXISTS (
            SELECT FROM jobs_attempt WHERE job_id = OLD.id AND token = NEW.checkpoint_token
            AND progress = NEW.checkpoint AND progress_base = NEW.checkpoint_base) THEN
        PERFORM remora_refuse('ResumeValidity',
            format('checkpoint %s of attempt %s is not what job %s has reached', NEW.checkpoint, NEW.checkpoint_token, OLD.id));
    END IF;
    RETURN NEW;
END $$;
DO $$
BEGIN
    EXECUTE format('ALTER FUNCTION remora_job_checkpoint() SET search_path = %I, pg_temp', current_schema());
END $$;
-- By its name it is asked after rule_update.
CREATE TRIGGER rule_update_checkpoint
    BEFORE UPDATE OF checkpoint, checkpoint_token, checkpoint_base, checkpoint_valid ON jobs_job
    FOR EACH ROW EXECUTE FUNCTION remora_job_checkpoint();
