-- Rules of the ledger that span rows or time. They refuse what breaks them, whoever writes: the product, an operator
-- at a prompt, a program gone wrong. Each error begins with the name of the invariant it holds.

-- FinalStatesAreImmutable, CredentialLifecycleWellFormed (the steps, and what a step says of the paths), and the
-- durable half of NoOrphanSecrets: a row that may own a live secret does not go.
CREATE FUNCTION credential_intent_rules() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        IF EXISTS (SELECT 1 FROM credentials_secretpath p WHERE p.intent_id = OLD.id) OR OLD.state NOT IN
           ('CredentialIntentCommitted', 'CredentialIntentAbandoned') THEN
            RAISE EXCEPTION 'NoOrphanSecrets: intent % is open or has a path that is not forgotten', OLD.id
                USING ERRCODE = 'check_violation';
        END IF;
        RETURN OLD;
    END IF;
    IF TG_OP = 'INSERT' THEN
        IF NEW.state <> 'CredentialIntentPrepared' OR NEW.path <> '' OR NEW.tries <> 0 THEN
            RAISE EXCEPTION 'CredentialLifecycleWellFormed: an intent begins as CredentialIntentPrepared'
                USING ERRCODE = 'check_violation';
        END IF;
        RETURN NEW;
    END IF;
    IF OLD.state IN ('CredentialIntentCommitted', 'CredentialIntentAbandoned') THEN
        IF NEW IS DISTINCT FROM OLD THEN
            RAISE EXCEPTION 'FinalStatesAreImmutable: intent % is %', OLD.id, OLD.state
                USING ERRCODE = 'check_violation';
        END IF;
        RETURN NEW;
    END IF;
    IF (NEW.id, NEW.owner, NEW.name, NEW.field_names, NEW.expected_number)
       IS DISTINCT FROM (OLD.id, OLD.owner, OLD.name, OLD.field_names, OLD.expected_number) THEN
        RAISE EXCEPTION 'CredentialLifecycleWellFormed: what intent % is for does not change', OLD.id
            USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.state <> OLD.state AND (OLD.state, NEW.state) NOT IN (
        ('CredentialIntentPrepared', 'CredentialIntentWriting'),      -- BeginCredentialWrite
        ('CredentialIntentPrepared', 'CredentialIntentAbandoned'),    -- AbandonFencedCredentialIntent
        ('CredentialIntentWriting', 'CredentialIntentWritten'),       -- RecordCredentialWrite
        ('CredentialIntentWriting', 'CredentialIntentPrepared'),      -- FenceFailedCredentialWrite
        ('CredentialIntentWriting', 'CredentialIntentAbandoning'),    -- ClaimCredentialCleanup
        ('CredentialIntentWritten', 'CredentialIntentAbandoning'),    -- ClaimCredentialCleanup
        ('CredentialIntentWritten', 'CredentialIntentCommitted'),     -- CommitCredentialVersion
        ('CredentialIntentAbandoning', 'CredentialIntentAbandoned')   -- DestroyClaimedCredentialSecret
    ) THEN
        RAISE EXCEPTION 'CredentialLifecycleWellFormed: no action leads from % to %', OLD.state, NEW.state
            USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.state <> OLD.state THEN
        IF NEW.state = 'CredentialIntentWriting' AND NOT EXISTS (
            SELECT 1 FROM credentials_secretpath p
            WHERE p.path = NEW.path AND p.intent_id = NEW.id AND p.number = NEW.tries AND p.closed_at IS NULL
        ) THEN
            RAISE EXCEPTION 'NoOrphanSecrets: intent % would write to a path that the ledger does not know', OLD.id
                USING ERRCODE = 'check_violation';
        END IF;
        IF NEW.state IN ('CredentialIntentPrepared', 'CredentialIntentAbandoned') AND EXISTS (
            SELECT 1 FROM credentials_secretpath p WHERE p.intent_id = NEW.id AND p.closed_at IS NULL
        ) THEN
            RAISE EXCEPTION 'NoOrphanSecrets: intent % would leave a path that is neither fenced nor destroyed',
                OLD.id USING ERRCODE = 'check_violation';
        END IF;
    END IF;
    IF (NEW.path, NEW.tries) IS DISTINCT FROM (OLD.path, OLD.tries) AND NOT
       (OLD.state = 'CredentialIntentPrepared' AND NEW.state = 'CredentialIntentWriting' AND NEW.tries = OLD.tries + 1)
    THEN
        RAISE EXCEPTION 'CredentialLifecycleWellFormed: a path belongs to one try of intent %', OLD.id
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER credential_intent_rules BEFORE INSERT OR UPDATE OR DELETE ON credentials_credentialintent
    FOR EACH ROW EXECUTE FUNCTION credential_intent_rules();

-- The durable half of NoOrphanSecrets, for paths: what was handed to a writer stays in the ledger until forgotten,
-- and each of its steps is for good.
CREATE FUNCTION secret_path_rules() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        IF OLD.forgotten_at IS NULL THEN
            RAISE EXCEPTION 'NoOrphanSecrets: path % is not forgotten', OLD.path USING ERRCODE = 'check_violation';
        END IF;
        RETURN OLD;
    END IF;
    IF (NEW.path, NEW.intent_id, NEW.number, NEW.writer_accessor, NEW.opened_at)
       IS DISTINCT FROM (OLD.path, OLD.intent_id, OLD.number, OLD.writer_accessor, OLD.opened_at)
       OR (OLD.closed_at IS NOT NULL AND NEW.closed_at IS DISTINCT FROM OLD.closed_at)
       OR (OLD.writer_dead_at IS NOT NULL AND NEW.writer_dead_at IS DISTINCT FROM OLD.writer_dead_at)
       OR (OLD.forgotten_at IS NOT NULL AND NEW.forgotten_at IS DISTINCT FROM OLD.forgotten_at) THEN
        RAISE EXCEPTION 'NoOrphanSecrets: what is known of path % does not change', OLD.path
            USING ERRCODE = 'check_violation';
    END IF;
    IF OLD.closed_at IS NULL AND NEW.closed_at IS NOT NULL AND EXISTS (
        SELECT 1 FROM credentials_credentialversion v WHERE v.path = NEW.path AND v.state = 'Live'
    ) THEN
        RAISE EXCEPTION 'NoOrphanSecrets: path % belongs to a live version', OLD.path
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER secret_path_rules BEFORE UPDATE OR DELETE ON credentials_secretpath
    FOR EACH ROW EXECUTE FUNCTION secret_path_rules();

-- A version exists if and only if its intent is Committed: looked at when the transaction ends, since it writes both.
CREATE FUNCTION committed_if_and_only_if_durable() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    wanted uuid;
BEGIN
    IF TG_TABLE_NAME = 'credentials_credentialversion' THEN wanted := NEW.intent_id; ELSE wanted := NEW.id; END IF;
    IF EXISTS (SELECT 1 FROM credentials_credentialintent i WHERE i.id = wanted AND i.version_durable)
       IS DISTINCT FROM EXISTS (
        SELECT 1 FROM credentials_credentialversion v JOIN credentials_credentialintent i ON i.id = v.intent_id
        WHERE i.id = wanted AND v.path = i.path AND v.owner = i.owner AND v.name = i.name) THEN
        RAISE EXCEPTION 'CredentialLifecycleWellFormed: intent % is Committed without its version, or the reverse',
            wanted USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER committed_has_a_version AFTER INSERT OR UPDATE ON credentials_credentialintent
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION committed_if_and_only_if_durable();
CREATE CONSTRAINT TRIGGER a_version_was_committed AFTER INSERT ON credentials_credentialversion
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION committed_if_and_only_if_durable();

-- A version goes only forward, is not destroyed under a holder or while it is current, and keeps its row while its
-- path may hold something.
CREATE FUNCTION credential_version_rules() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        IF OLD.state <> 'Destroyed' THEN
            RAISE EXCEPTION 'NoOrphanSecrets: version % is not destroyed', OLD.id USING ERRCODE = 'check_violation';
        END IF;
        RETURN OLD;
    END IF;
    IF (NEW.id, NEW.intent_id, NEW.owner, NEW.name, NEW.number, NEW.path, NEW.field_names, NEW.created_at)
       IS DISTINCT FROM
       (OLD.id, OLD.intent_id, OLD.owner, OLD.name, OLD.number, OLD.path, OLD.field_names, OLD.created_at)
       OR (OLD.superseded_at IS NOT NULL AND NEW.superseded_at IS DISTINCT FROM OLD.superseded_at)
       OR (OLD.state = 'Destroyed' AND NEW IS DISTINCT FROM OLD) THEN
        RAISE EXCEPTION 'VersionIsImmutable: version %', OLD.id USING ERRCODE = 'check_violation';
    END IF;
    IF NEW.state <> OLD.state THEN
        IF (OLD.state, NEW.state) NOT IN (('Live', 'Destroying'), ('Destroying', 'Destroyed')) THEN
            RAISE EXCEPTION 'VersionIsImmutable: no step leads from % to %', OLD.state, NEW.state
                USING ERRCODE = 'check_violation';
        END IF;
        IF EXISTS (SELECT 1 FROM credentials_versionpin p WHERE p.version_id = OLD.id) THEN
            RAISE EXCEPTION 'PinnedVersionIsKept: version % is pinned', OLD.id USING ERRCODE = 'check_violation';
        END IF;
        IF NEW.state = 'Destroyed' AND EXISTS (
            SELECT 1 FROM credentials_secretpath p WHERE p.path = OLD.path AND p.closed_at IS NULL
        ) THEN
            RAISE EXCEPTION 'NoOrphanSecrets: the secret of version % is not proved destroyed', OLD.id
                USING ERRCODE = 'check_violation';
        END IF;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER credential_version_rules BEFORE UPDATE OR DELETE ON credentials_credentialversion
    FOR EACH ROW EXECUTE FUNCTION credential_version_rules();

-- The foreign key's lock on the version excludes the one that destroying takes: one of the two sees the other.
CREATE FUNCTION version_pin_rules() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM credentials_credentialversion v WHERE v.id = NEW.version_id AND v.state = 'Live' FOR KEY SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'PinnedVersionIsKept: version % is not live', NEW.version_id
            USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER version_pin_rules BEFORE INSERT OR UPDATE ON credentials_versionpin
    FOR EACH ROW EXECUTE FUNCTION version_pin_rules();

-- A connection's number only rises, and a retired connection stays so.
CREATE FUNCTION connection_rules() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.current_number NOT IN (OLD.current_number, OLD.current_number + 1)
       OR (OLD.retired_at IS NOT NULL AND NEW IS DISTINCT FROM OLD)
       OR (NEW.id, NEW.name, NEW.kind) IS DISTINCT FROM (OLD.id, OLD.name, OLD.kind) THEN
        RAISE EXCEPTION 'ConnectionNumbersRise: connection %', OLD.name USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER connection_rules BEFORE UPDATE ON credentials_connection
    FOR EACH ROW EXECUTE FUNCTION connection_rules();

-- The journal is only ever added to.
CREATE FUNCTION credential_event_is_immutable() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'JournalIsAppendOnly: event %', OLD.seq USING ERRCODE = 'check_violation';
END $$;
CREATE TRIGGER credential_event_is_immutable BEFORE UPDATE ON credentials_credentialevent
    FOR EACH ROW EXECUTE FUNCTION credential_event_is_immutable();

-- TRUNCATE passes by every row's rule. Tests empty their own database so, and say it when they connect.
CREATE FUNCTION credentials_no_truncate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF coalesce(current_setting('remora.allow_truncate', true), '') <> 'on' THEN
        RAISE EXCEPTION 'NoOrphanSecrets: % is not truncated', TG_TABLE_NAME USING ERRCODE = 'check_violation';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER rule_truncate BEFORE TRUNCATE ON credentials_credentialintent EXECUTE FUNCTION credentials_no_truncate();
CREATE TRIGGER rule_truncate BEFORE TRUNCATE ON credentials_secretpath EXECUTE FUNCTION credentials_no_truncate();
CREATE TRIGGER rule_truncate BEFORE TRUNCATE ON credentials_credentialversion EXECUTE FUNCTION credentials_no_truncate();
CREATE TRIGGER rule_truncate BEFORE TRUNCATE ON credentials_versionpin EXECUTE FUNCTION credentials_no_truncate();
CREATE TRIGGER rule_truncate BEFORE TRUNCATE ON credentials_credentialevent EXECUTE FUNCTION credentials_no_truncate();
