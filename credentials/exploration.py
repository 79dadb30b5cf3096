"""The credential intents as a system to explore: so many for each job, each taking its nine actions by
itself.

Pure. What explores it stands above both apps; this module only says what the intents' states and steps are,
what must hold of them, and which of their actions are fair.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from credentials.protocol import (
    ACTIONS,
    FINAL_STATES,
    INVARIANTS,
    Accepted,
    IntentRecord,
    IntentState,
)

Intents = tuple[IntentRecord, ...]


class Fair(NamedTuple):
    """A fairness assumption on some actions of each intent: weak, or strong."""

    name: str
    actions: tuple[str, ...]
    strong: bool = False
    by: tuple[str, ...] = ("job", "intent")


# CredentialFairness: the credential service and its reconciler keep at every intent that they have prepared.
FAIRNESS: Final = (
    Fair("BeginOrAbandon", ("BeginCredentialWrite", "AbandonFencedCredentialIntent")),
    Fair("CompleteCredentialWrite", ("CompleteCredentialWrite",), strong=True),
    Fair("RecordOrClaim", ("RecordCredentialWrite", "ClaimCredentialCleanup")),
    Fair("CommitOrClaim", ("CommitCredentialVersion", "ClaimCredentialCleanup")),
    Fair("DestroyClaimedCredentialSecret", ("DestroyClaimedCredentialSecret",)),
)


class CredentialIntents:
    """Every intent starts Unused; a step is one action on one intent."""

    def __init__(self, job_ids: tuple[str, ...], intents_per_job: int) -> None:
        self.keys = tuple(
            (job_id, sequence) for job_id in job_ids for sequence in range(1, intents_per_job + 1)
        )

    def initial(self) -> Intents:
        return (IntentRecord(),) * len(self.keys)

    def steps(self, intents: Intents) -> Iterator[tuple[str, Mapping[str, str | int], Intents]]:
        for position, (job_id, sequence) in enumerate(self.keys):
            for name, spec in ACTIONS.items():
                decision = spec.function(intents[position])
                if isinstance(decision, Accepted):
                    after = (*intents[:position], decision.value, *intents[position + 1 :])
                    yield name, {"job": job_id, "intent": sequence}, after

    def broken(self, intents: Intents) -> list[str]:
        """The invariants that these intents break."""
        return [name for name, holds in INVARIANTS.items() if not all(map(holds, intents))]

    def quiescent(self, intents: Intents) -> bool:
        """SystemQuiescent, for the intents."""
        settled = FINAL_STATES | {IntentState.UNUSED}
        return all(intent.state in settled for intent in intents)

    def variables(self, intents: Intents) -> dict[str, object]:
        values: dict[str, object] = {}
        for (job_id, sequence), intent in zip(self.keys, intents, strict=True):
            for name in ("state", "vault", "version_durable"):
                values[f"{job_id}.intent.{sequence}.{name}"] = getattr(intent, name)
        return values
