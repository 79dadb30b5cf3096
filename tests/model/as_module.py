"""An explored state as the module's variables, so that it can be compared with the oracle's."""

from dataclasses import fields
from typing import Any

from credentials.exploration import CredentialIntents
from jobs.protocol.bounds import FAULTS, Bounds
from jobs.protocol.explorer import Exploration, explore
from jobs.protocol.explorer_world import World
from jobs.protocol.records import AttemptRecord, CoordinationRecord, JobView
from jobs.protocol.states import Service
from tests.model.oracle_state import Constants, State, frozen, initial

OF_ATTEMPT = {
    "attemptState": "state",
    "attemptWorker": "worker",
    "attemptProgress": "progress",
    "initialProgress": "initial_progress",
    "resumedFromCheckpoint": "resumed_from_checkpoint",
    "stageState": "stage_state",
    "pendingOutcome": "pending_outcome",
}
OF_JOB = {
    "phase": "phase",
    "cancelRequested": "cancel_requested",
    "currentToken": "current_token",
    "dispatchNeeded": "dispatch_needed",
    "checkpoint": "checkpoint",
    "checkpointValid": "checkpoint_valid",
}
OF_COORDINATION = {
    "queued": "queued",
    "reservation": "reservation",
    "reservationAge": "reservation_age",
    "cancelNotice": "cancel_notice",
    "liveProgress": "live_progress",
}
OF_INTENT = {
    "credentialIntentState": "state",
    "vaultSecretState": "vault",
    "credentialVersionDurable": "version_durable",
}


def explored(bounds: Bounds, **options: Any) -> Exploration:
    """The whole protocol within bounds, credential intents included."""
    intents = CredentialIntents(bounds.job_ids, bounds.credential_intents)
    return explore(bounds, intents if bounds.credential_intents else None, **options)


def named(value: object) -> str | None:
    """A test's id: only what differs from the smallest bounds."""
    if not isinstance(value, Bounds):
        return None
    parts = [
        f"{field.name}={'+'.join(sorted(chosen)) if isinstance(chosen, frozenset) else chosen}"
        for field in fields(value)
        if (chosen := getattr(value, field.name)) != field.default
    ]
    return ",".join(parts) or "smallest"


def constants(bounds: Bounds) -> Constants:
    """The same bounds as the module's CONSTANTS."""
    return Constants(
        bounds.job_ids,
        bounds.worker_ids,
        bounds.worker_ids[: bounds.initial_workers],
        bounds.max_attempts,
        bounds.max_progress,
        bounds.lease_limit,
        bounds.reservation_limit,
        bounds.local_limit,
        bounds.global_limit,
        bool(bounds.faults),
        tuple(str(FAULTS[name]) for name in bounds.faults if FAULTS[name] is not None),
        bounds.coord_losses,
        bounds.partitions,
        bounds.credential_intents,
    )


def as_module(world: World, state: int) -> Any:
    """The state as the oracle freezes its own."""
    bounds = world.bounds
    values = initial(constants(bounds))
    for job_id, view in zip(bounds.job_ids, world.views(state), strict=True):
        _put_job(values, job_id, view)
        _put_coordination(values, job_id, view.coordination)
        for attempt in view.attempts:
            _put_attempt(values, (job_id, attempt.token), attempt)
    environment = world.environment(state)
    values["coordLossCount"], values["partitionCount"] = environment.coord_losses, environment.partitions
    for worker in environment.workers:
        values["workerState"][worker.id] = str(worker.state)
        for service in Service:
            link = worker.links[list(Service).index(service)]
            values["links"][worker.id, str(service)] = str(link)
    if bounds.credential_intents:
        for key, intent in zip(constants(bounds).intents, world.beside(state), strict=True):
            for variable, field in OF_INTENT.items():
                values[variable][key] = getattr(intent, field)
    return frozen(values)


def _put_job(values: State, job_id: str, view: JobView) -> None:
    for variable, field in OF_JOB.items():
        values[variable][job_id] = getattr(view.job, field)
    for variable, token in (("authority", view.job.authority), ("committedAttempt", view.job.committed)):
        values[variable][job_id] = (job_id, token) if token else None


def _put_coordination(values: State, job_id: str, coordination: CoordinationRecord) -> None:
    for variable, field in OF_COORDINATION.items():
        values[variable][job_id] = getattr(coordination, field)
    token = coordination.live_progress_token
    values["liveProgressAttempt"][job_id] = (job_id, token) if token else None
    for lease in coordination.leases:
        values["leaseState"][job_id, lease.token] = str(lease.state)
        values["leaseAge"][job_id, lease.token] = lease.age


def _put_attempt(values: State, key: tuple[str, int], attempt: AttemptRecord) -> None:
    for variable, field in OF_ATTEMPT.items():
        values[variable][key] = getattr(attempt, field)
