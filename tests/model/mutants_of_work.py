"""Mutants of execution, outcomes, recovery, cancellation, clean-up, the world, and credential intents."""

from credentials import protocol as credentials
from jobs.protocol import cancellation, cleanup, execution, faults, outcomes, recovery
from tests.model.mutants import (
    COUNT,
    CRASHES,
    INTENT,
    LOSSES,
    ONE,
    PROGRESS,
    ROOMY,
    TWO_ATTEMPTS,
    ZOMBIES,
    Mutant,
    dropped,
)

WORK_AND_ENDS = [
    # execution
    dropped(execution.advance_attempt, "amount <= attempt.progress", PROGRESS, "LiveProgressWellFormed"),
    dropped(execution.persist_checkpoint, "not view.current_authority(token)", ZOMBIES, COUNT),
    dropped(execution.persist_checkpoint, "view.job.phase is not Phase.RUNNING", ONE, COUNT),
    dropped(execution.invalidate_checkpoint, "view.job.terminal", ONE, "TerminalStateIsImmutable"),
    Mutant(
        execution.report_progress,
        "live_progress=attempt.progress",
        "live_progress=attempt.progress + 1",
        ONE,
        "LiveProgressWellFormed",
    ),
    dropped(execution.cooperative_stop, "not has_reason", ONE, COUNT),
    # outcomes
    dropped(outcomes._not_answerable, "not view.current_authority(token)", ROOMY, "CommitIsFencedCAS"),
    Mutant(outcomes.accept_success, "authority=NO_TOKEN,", "", ONE, "StateConsistency"),
    Mutant(outcomes.accept_success, "committed=token,", "", ONE, "StateConsistency"),
    Mutant(outcomes.accept_success, "state=AttemptState.COMMITTED, ", "", ONE, "CommittedResultConsistent"),
    Mutant(
        outcomes._accept_failure,
        "< limits.max_attempts",
        "<= limits.max_attempts",
        ONE,
        "FailureDispositionHonored",
    ),
    Mutant(
        outcomes._accept_failure,
        "outcome is OutcomeRequest.RETRYABLE_FAILURE and ",
        "",
        TWO_ATTEMPTS,
        "FailureDispositionHonored",
    ),
    Mutant(outcomes._accept_failure, ", authority=NO_TOKEN", "", ONE, "StateConsistency"),
    Mutant(outcomes.reject_outcome, "or failure_eligible(view, token) is None", "", ONE, COUNT),
    # recovery
    dropped(recovery.reap_lost_attempt, "view.coordination.lease_is_live(token)", ONE, COUNT),
    dropped(recovery.reap_lost_attempt, "view.job.phase is not Phase.RUNNING", ONE, "StateConsistency"),
    Mutant(
        recovery.reap_lost_attempt,
        "< limits.max_attempts",
        "<= limits.max_attempts",
        ONE,
        "EventuallyTerminal",
    ),
    Mutant(recovery.reap_lost_attempt, ", authority=NO_TOKEN", "", ONE, "StateConsistency"),
    Mutant(
        recovery.reap_lost_attempt,
        "if never_activated else revoked",
        "if False else revoked",
        ONE,
        "Deadlock",
    ),
    Mutant(recovery.schedule_retry, ", dispatch_needed=True", "", TWO_ATTEMPTS, "StateConsistency"),
    Mutant(
        recovery.stop_attempts_of,
        "AttemptState.AUTHORIZED, AttemptState.EXECUTING",
        "AttemptState.STOPPED,",
        CRASHES,
        COUNT,
    ),
    dropped(recovery.start_incarnation, "worker.state is not WorkerState.UNUSED", CRASHES, COUNT),
    # cancellation
    dropped(
        cancellation.request_cancel,
        "phase not in (Phase.QUEUED, Phase.RUNNING, Phase.RETRY_WAIT)",
        ONE,
        "TerminalStateIsImmutable",
    ),
    Mutant(cancellation.request_cancel, "cancel_requested=True,", "", ONE, "StateConsistency"),
    Mutant(
        cancellation.request_cancel,
        "Phase.CANCELLING if running else Phase.CANCELLED",
        "Phase.CANCELLED",
        ONE,
        "StateConsistency",
    ),
    dropped(cancellation.finalize_cancel, "view.job.phase is not Phase.CANCELLING", ONE, "StateConsistency"),
    Mutant(
        cancellation.finalize_cancel,
        "if attempt.state is AttemptState.AUTHORIZED",
        "if False",
        ONE,
        "Deadlock",
    ),
    Mutant(cancellation.finalize_cancel, ", authority=NO_TOKEN", "", ONE, "StateConsistency"),
    dropped(cancellation.publish_cancel_notice, "view.job.terminal", ONE, COUNT),
    # clean-up
    dropped(cleanup.cleanup_stage, "view.current_authority(token)", ONE, "StagingOwnership"),
    dropped(cleanup.cleanup_stage, "view.job.committed == token", CRASHES, "StateConsistency"),
    Mutant(cleanup.cleanup_stage, "attempt.state is AttemptState.STOPPED or ", "", ONE, "Deadlock"),
    dropped(
        cleanup.cleanup_stage,
        "not (attempt.state is AttemptState.STOPPED or worker.state is WorkerState.DOWN)",
        ONE,
        COUNT,
    ),
    Mutant(cleanup.clear_stale_live_progress, ", live_progress_token=NO_TOKEN", "", ONE, COUNT),
    Mutant(cleanup.clean_terminal_coordination, "cancel_notice=False,", "", ONE, "EventuallySystemQuiescent"),
    dropped(cleanup.clean_terminal_coordination, "not view.job.terminal", ONE, COUNT),
    # the world
    Mutant(faults.lose_coordination_state, "LeaseState.LOST", "LeaseState.EXPIRED", LOSSES, COUNT),
    # credential intents
    Mutant(
        credentials.fence_failed_credential_write,
        "if intent.vault is not VaultState.ABSENT:",
        "if False:",
        INTENT,
        "CredentialLifecycleWellFormed",
    ),
    Mutant(
        credentials.commit_credential_version,
        ", version_durable=True",
        "",
        INTENT,
        "CredentialLifecycleWellFormed",
    ),
    Mutant(
        credentials.record_credential_write,
        "if intent.vault is not VaultState.LIVE:",
        "if False:",
        INTENT,
        "CredentialLifecycleWellFormed",
    ),
    Mutant(
        credentials.complete_credential_write,
        "if intent.state is not IntentState.WRITING:",
        "if False:",
        INTENT,
        "CredentialLifecycleWellFormed",
    ),
    Mutant(
        credentials.destroy_claimed_credential_secret,
        ", vault=VaultState.DESTROYED",
        "",
        INTENT,
        "NoOrphanSecrets",
    ),
]
