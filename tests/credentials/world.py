"""What the tests of intents share: stopping a process at a step, and asking both stores how things stand."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from django.db import connection

from credentials import account
from credentials.models import CredentialIntent, CredentialVersion, SecretPath, VersionState
from credentials.protocol import OPEN_STATES
from credentials.reconciler import Pass
from tests.credentials.conftest import Vault

PERIODS_MAX = 3
_inherited: list[Any] = []


class Stopped(Exception):
    """Raised where the test stops the world."""


def raising_at(point: str) -> Callable[[str], None]:
    def witness(at: str) -> None:
        if at == point:
            raise Stopped(point)

    return witness


def killing_at(point: str) -> Callable[[str], None]:
    """SIGKILL to this very process: nothing is closed, flushed or rolled back by it."""

    def witness(at: str) -> None:
        if at == point:
            os.kill(os.getpid(), signal.SIGKILL)

    return witness


def forked(work: Callable[[], object]) -> int:
    """Run in a forked process, with sessions of its own; its process id."""
    pid = os.fork()
    if pid == 0:
        status = 70
        try:
            # Kept, not closed: closing would end the parent's session on the server.
            _inherited.append(connection.connection)
            connection.connection = None
            work()
            status = 0
        finally:
            os._exit(status)
    return pid


def ended(pid: int) -> int:
    """The exit status, negative for the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def in_a_process_of_its_own(work: Callable[[], object]) -> int:
    return ended(forked(work))


def settle(vault: Vault, periods_max: int = PERIODS_MAX) -> list[Pass]:
    """Reconcile as often as it may take, and require that both stores then agree."""
    passes = [vault.reconciler().reconcile_credentials() for _ in range(periods_max)]
    require_settled(vault)
    return passes


def require_settled(vault: Vault) -> None:
    """No open intent; what OpenBao itself lists as holding something is exactly what live versions own."""
    open_ones = list(CredentialIntent.objects.filter(state__in=OPEN_STATES).values_list("state", "why"))
    assert open_ones == []
    owned = set(
        CredentialVersion.objects.exclude(state=VersionState.DESTROYED).values_list("path", flat=True)
    )
    assert vault.live() == owned
    assert not SecretPath.objects.filter(closed_at=None).exclude(path__in=owned).exists()
    assert account.take_account(vault.audit).balanced
