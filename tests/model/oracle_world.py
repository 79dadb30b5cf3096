"""The module's faults and credential actions, for the oracle: next to nothing but its text."""

from collections.abc import Iterator

from tests.model.oracle_state import NONE, SERVICES, Constants, State, Step, changed, up


def of_the_world(c: Constants, s: State) -> Iterator[Step]:
    aging = [a for a in c.attempts if s["leaseState"][a] == "LeaseLive" and s["leaseAge"][a] < c.lease_limit]
    waiting = [
        j for j in c.jobs if s["reservation"][j] is not NONE and s["reservationAge"][j] < c.reservation_limit
    ]
    if aging or waiting:
        yield (
            "Tick",
            changed(
                s,
                leaseAge={a: age + (a in aging) for a, age in s["leaseAge"].items()},
                reservationAge={j: age + (j in waiting) for j, age in s["reservationAge"].items()},
            ),
        )
    if c.faults_enabled and "Coordination" in c.fault_services and s["coordLossCount"] < c.max_coord_losses:
        yield "LoseCoordinationState", _wiped(c, s)
    for w in c.workers:
        yield from _links(c, s, w)
        yield from _lives(c, s, w)


def _wiped(c: Constants, s: State) -> State:
    return changed(
        s,
        queued=dict.fromkeys(c.jobs, False),
        reservation=dict.fromkeys(c.jobs, NONE),
        reservationAge=dict.fromkeys(c.jobs, 0),
        leaseState={a: "LeaseLost" if x == "LeaseLive" else x for a, x in s["leaseState"].items()},
        leaseAge=dict.fromkeys(c.attempts, 0),
        cancelNotice=dict.fromkeys(c.jobs, False),
        liveProgress=dict.fromkeys(c.jobs, 0),
        liveProgressAttempt=dict.fromkeys(c.jobs, NONE),
        coordLossCount=s["coordLossCount"] + 1,
    )


def _links(c: Constants, s: State, w: str) -> Iterator[Step]:
    for service in SERVICES:
        link = s["links"][w, service]
        if (
            c.faults_enabled
            and service in c.fault_services
            and up(s, w)
            and link in ("LinkUp", "LinkRecovered")
            and s["partitionCount"] < c.max_partitions
        ):
            cut = s["links"] | {(w, service): "LinkDown"}
            yield "DropLink", changed(s, links=cut, partitionCount=s["partitionCount"] + 1)
        if link == "LinkDown":
            yield "RestoreLink", changed(s, links=s["links"] | {(w, service): "LinkRecovered"})


def _lives(c: Constants, s: State, w: str) -> Iterator[Step]:
    others = [x for x in c.workers if x != w and s["workerState"][x] in ("WorkerUp", "WorkerUnused")]
    if c.faults_enabled and up(s, w) and others:
        stopped = {
            a: "AttemptStopped"
            if s["attemptWorker"][a] == w and state in ("AttemptAuthorized", "AttemptExecuting")
            else state
            for a, state in s["attemptState"].items()
        }
        yield "CrashWorker", changed(s, workerState=(w, "WorkerDown"), attemptState=stopped)
    if s["workerState"][w] == "WorkerUnused":
        yield "StartIncarnation", changed(s, workerState=(w, "WorkerUp"))


def of_intents(c: Constants, s: State) -> Iterator[Step]:
    for i in c.intents:
        state, vault = s["credentialIntentState"][i], s["vaultSecretState"][i]
        durable = s["credentialVersionDurable"][i]
        absent, live = vault == "VaultSecretAbsent", vault == "VaultSecretLive"
        moves = {
            "PrepareCredentialIntent": (state == "CredentialIntentUnused", "Prepared"),
            "BeginCredentialWrite": (state == "CredentialIntentPrepared" and absent, "Writing"),
            "RecordCredentialWrite": (state == "CredentialIntentWriting" and live, "Written"),
            "FenceFailedCredentialWrite": (state == "CredentialIntentWriting" and absent, "Prepared"),
            "ClaimCredentialCleanup": (
                state in ("CredentialIntentWriting", "CredentialIntentWritten") and live and not durable,
                "Abandoning",
            ),
            "AbandonFencedCredentialIntent": (
                state == "CredentialIntentPrepared" and absent,
                "Abandoned",
            ),
        }
        for action, (enabled, target) in moves.items():
            if enabled:
                into = s["credentialIntentState"] | {i: f"CredentialIntent{target}"}
                yield action, changed(s, credentialIntentState=into)
        if state == "CredentialIntentWriting" and absent:
            landed = s["vaultSecretState"] | {i: "VaultSecretLive"}
            yield "CompleteCredentialWrite", changed(s, vaultSecretState=landed)
        if state == "CredentialIntentWritten" and live:
            into = s["credentialIntentState"] | {i: "CredentialIntentCommitted"}
            owned = s["credentialVersionDurable"] | {i: True}
            yield (
                "CommitCredentialVersion",
                changed(s, credentialIntentState=into, credentialVersionDurable=owned),
            )
        if state == "CredentialIntentAbandoning" and live and not durable:
            into = s["credentialIntentState"] | {i: "CredentialIntentAbandoned"}
            gone = s["vaultSecretState"] | {i: "VaultSecretDestroyed"}
            yield (
                "DestroyClaimedCredentialSecret",
                changed(s, credentialIntentState=into, vaultSecretState=gone),
            )
