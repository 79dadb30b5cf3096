"""One intent's way through both stores: forward with its material in hand, or cleared without it.

prepare -> begin -> write -> record (-> commit, which is the caller's transaction); fence, claim, destroy,
abandon.

Forward only ever happens in the process that holds the material; whoever finds an intent left behind clears
it. Both may meet: each step is compared with the row under its lock, and the one who is refused lets go.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar
from uuid import UUID

from credentials import transitions
from credentials.errors import FailureClass, IntentGone, LedgerUnavailable, VaultError
from credentials.ids import new_path
from credentials.kv import FenceOutcome, SecretStore
from credentials.protocol import IntentState, VaultState
from credentials.secret import Material
from credentials.store import Actor
from credentials.transitions import Begin, Step

R = TypeVar("R")
# What is told of each step of either store, before it and after it, by its name: tests stop the world there.
Witness = Callable[[str], None]

PAUSE_S_MAX: Final = 2.0
ABANDONED_BY_ITS_WRITER: Final = "abandoned by its writer"


def no_witness(point: str) -> None:
    """Nobody watches."""


def _pause(try_number: int, retry_after_s: float | None) -> None:
    wanted_s = retry_after_s if retry_after_s is not None else random.uniform(0, 0.1 * 4**try_number)
    time.sleep(min(PAUSE_S_MAX, wanted_s))


@dataclass(frozen=True, slots=True)
class IntentDriver:
    """Drives intents. Holds no state: any number may be at the same intent."""

    secrets: SecretStore
    actor: Actor
    tries_max: int = 3
    write_token_s: int = 60
    witness: Witness = no_witness

    def step(self, name: str, call: Callable[[], R]) -> R:
        self.witness(f"before {name}")
        result = call()
        self.witness(f"after {name}")
        return result

    def write(self, intent_id: UUID, material: Material) -> str:
        """Prepared -> Written; the path at which the material is. Tries again, each time at a path of its
        own.

        After an error the intent is Abandoned, or is left to the reconciler where that could not be reached.
        """
        for try_number in range(1, self.tries_max + 1):
            try:
                return self._try(intent_id, material)
            except VaultError as error:
                again = error.failure_class is FailureClass.RETRYABLE and try_number < self.tries_max
                if again and self._is_prepared(intent_id):
                    _pause(try_number, error.retry_after_s)
                    continue
                self.clear(intent_id, ABANDONED_BY_ITS_WRITER)
                raise
        raise AssertionError("unreachable")

    def _try(self, intent_id: UUID, material: Material) -> str:
        path = new_path()
        token = self.step("write_token", lambda: self.secrets.write_token(self.write_token_s))
        begin = Begin(intent_id, path, token.accessor)
        begun = self.step(
            "BeginCredentialWrite", lambda: transitions.begin_credential_write([begin], self.actor)
        )
        if begun[0].refused:
            raise IntentGone(f"Intent {intent_id} was cleared while it waited.")
        lost: VaultError | None = None
        try:
            self.step("CompleteCredentialWrite", lambda: self.secrets.write(path, material, token))
        except VaultError as error:
            lost = error
        # Not believed either way: the fence decides whether the write has landed or never will.
        if lost is not None and not self._landed_after_all(intent_id, path, lost):
            raise lost
        recorded = self.step(
            "RecordCredentialWrite",
            lambda: transitions.record_credential_write([Step(intent_id, path, VaultState.LIVE)], self.actor),
        )
        if recorded[0].refused:
            raise IntentGone(f"Intent {intent_id} was cleared before its write was recorded.")
        return path

    def _landed_after_all(self, intent_id: UUID, path: str, lost: VaultError) -> bool:
        try:
            outcome = self.step("fence", lambda: self.secrets.fence(path, self.write_token_s))
        except VaultError:
            return False  # stays Writing: the reconciler asks again once Vault answers
        if outcome is FenceOutcome.LANDED:
            return True
        self._fenced(intent_id, path, str(lost))
        return False

    def _fenced(self, intent_id: UUID, path: str, why: str) -> bool:
        step = Step(intent_id, path, VaultState.ABSENT, why)
        return self.step(
            "FenceFailedCredentialWrite",
            lambda: transitions.fence_failed_credential_write([step], self.actor),
        )[0].accepted

    def _is_prepared(self, intent_id: UUID) -> bool:
        found = transitions.look_up(intent_id)
        return found is not None and found.state == IntentState.PREPARED

    # --- clearing -----------------------------------------------------------------------------------------

    def clear(self, intent_id: UUID, why: str) -> bool:
        """As `drive_to_end`, for the writer itself: what it cannot do now is left to the reconciler."""
        try:
            return self.drive_to_end(intent_id, why)
        except (VaultError, LedgerUnavailable):
            return False

    def drive_to_end(self, intent_id: UUID, why: str) -> bool:
        """Any open state -> Abandoned. False if another process is at it, or it was committed. Safe to
        repeat.
        """
        intent = transitions.look_up(intent_id)
        if intent is None:
            return False
        state, path = IntentState(intent.state), intent.path
        if state is IntentState.WRITING:
            outcome = self.step("fence", lambda: self.secrets.fence(path, self.write_token_s))
            if outcome is FenceOutcome.FENCED:
                if not self._fenced(intent_id, path, why):
                    return False
                state = IntentState.PREPARED
        if state is IntentState.PREPARED:
            return self._abandon(Step(intent_id, path, VaultState.ABSENT, why))
        if state in (IntentState.WRITING, IntentState.WRITTEN):
            if not self._claim(Step(intent_id, path, VaultState.LIVE, why)):
                return False
            state = IntentState.ABANDONING
        return state is IntentState.ABANDONING and self._destroy(Step(intent_id, path, VaultState.LIVE, why))

    def _abandon(self, step: Step) -> bool:
        return self.step(
            "AbandonFencedCredentialIntent",
            lambda: transitions.abandon_fenced_credential_intent([step], self.actor, skip_locked=True),
        )[0].accepted

    def _claim(self, step: Step) -> bool:
        return self.step(
            "ClaimCredentialCleanup",
            lambda: transitions.claim_credential_cleanup([step], self.actor, skip_locked=True),
        )[0].accepted

    def _destroy(self, step: Step) -> bool:
        self.step("destroy", lambda: self.secrets.destroy(step.path))
        return self.step(
            "DestroyClaimedCredentialSecret",
            lambda: transitions.destroy_claimed_credential_secret([step], self.actor),
        )[0].accepted
