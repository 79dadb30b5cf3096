"""The oracle's constants, variables and predicates, spelled as in docs/spec/RemoraX.tla."""

from dataclasses import dataclass
from itertools import product
from typing import Any

State = dict[str, Any]
Step = tuple[str, State]
SERVICES = ("Coordination", "Durable", "Target")
TERMINAL = ("Succeeded", "Failed", "Cancelled")
FAILURES = ("WantsRetryableFailure", "WantsPermanentFailure")
NONE = None  # NoWorker, NoAttempt
Attempt = tuple[str, int]


@dataclass(frozen=True)
class Constants:
    """CONSTANTS, in the module's order."""

    jobs: tuple[str, ...] = ("j1",)
    workers: tuple[str, ...] = ("w1",)
    initial_workers: tuple[str, ...] = ("w1",)
    max_attempts: int = 1
    max_progress: int = 1
    lease_limit: int = 1
    reservation_limit: int = 1
    local_limit: int = 1
    global_limit: int = 1
    faults_enabled: bool = False
    fault_services: tuple[str, ...] = ()
    max_coord_losses: int = 0
    max_partitions: int = 0
    max_credential_intents: int = 0

    @property
    def attempts(self) -> list[tuple[str, int]]:
        return list(product(self.jobs, range(1, self.max_attempts + 1)))

    @property
    def intents(self) -> list[tuple[str, int]]:
        return list(product(self.jobs, range(1, self.max_credential_intents + 1)))


def initial(c: Constants) -> State:
    j, a, i = c.jobs, c.attempts, c.intents
    return {
        "phase": dict.fromkeys(j, "Queued"),
        "cancelRequested": dict.fromkeys(j, False),
        "currentToken": dict.fromkeys(j, 0),
        "authority": dict.fromkeys(j, NONE),
        "dispatchNeeded": dict.fromkeys(j, True),
        "committedAttempt": dict.fromkeys(j, NONE),
        "checkpoint": dict.fromkeys(j, 0),
        "checkpointValid": dict.fromkeys(j, False),
        "queued": dict.fromkeys(j, False),
        "reservation": dict.fromkeys(j, NONE),
        "reservationAge": dict.fromkeys(j, 0),
        "leaseState": dict.fromkeys(a, "NoLease"),
        "leaseAge": dict.fromkeys(a, 0),
        "cancelNotice": dict.fromkeys(j, False),
        "liveProgress": dict.fromkeys(j, 0),
        "liveProgressAttempt": dict.fromkeys(j, NONE),
        "coordLossCount": 0,
        "workerState": {w: "WorkerUp" if w in c.initial_workers else "WorkerUnused" for w in c.workers},
        "links": dict.fromkeys(product(c.workers, SERVICES), "LinkUp"),
        "partitionCount": 0,
        "attemptState": dict.fromkeys(a, "AttemptUnused"),
        "attemptWorker": dict.fromkeys(a, NONE),
        "attemptProgress": dict.fromkeys(a, 0),
        "initialProgress": dict.fromkeys(a, 0),
        "resumedFromCheckpoint": dict.fromkeys(a, False),
        "stageState": dict.fromkeys(a, "StageNone"),
        "pendingOutcome": dict.fromkeys(a, "NoOutcome"),
        "credentialIntentState": dict.fromkeys(i, "CredentialIntentUnused"),
        "vaultSecretState": dict.fromkeys(i, "VaultSecretAbsent"),
        "credentialVersionDurable": dict.fromkeys(i, False),
    }


def frozen(s: State) -> Any:
    """A state as a hashable value."""
    return tuple(
        (name, tuple(sorted(value.items())) if isinstance(value, dict) else value)
        for name, value in sorted(s.items())
    )


def changed(s: State, **primed: Any) -> State:
    """The next state: `x=(key, value)` is [x EXCEPT ![key] = value]; anything else is x' itself."""
    after = dict(s)
    for name, value in primed.items():
        if isinstance(value, tuple):
            after[name] = s[name] | {value[0]: value[1]}
        else:
            after[name] = value
    return after


def terminal(s: State, j: str) -> bool:
    return s["phase"][j] in TERMINAL


def can_reach(s: State, w: Any, service: str) -> bool:
    return bool(s["links"][w, service] != "LinkDown")


def up(s: State, w: Any) -> bool:
    return bool(s["workerState"][w] == "WorkerUp")


def current_authority(s: State, a: Attempt) -> bool:
    return bool(s["authority"][a[0]] == a and s["currentToken"][a[0]] == a[1])


def global_used(s: State) -> int:
    reserved = [j for j, w in s["reservation"].items() if w is not NONE]
    live = [a for a, lease in s["leaseState"].items() if lease == "LeaseLive"]
    return len(reserved) + len(live)


def capacity_available(c: Constants, s: State, w: str) -> bool:
    reserved_for = [j for j in c.jobs if s["reservation"][j] == w]
    executing_for = [
        a for a in c.attempts if s["attemptState"][a] == "AttemptExecuting" and s["attemptWorker"][a] == w
    ]
    return global_used(s) < c.global_limit and len(reserved_for) + len(executing_for) < c.local_limit
