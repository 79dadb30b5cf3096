"""Stopping another process with SIGSTOP, and knowing that it stands.

The kernel stops a process thread by thread, after `kill` has returned: a server of many threads may answer
one more call in between.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.waiting import wait_until

STOP_S = 10


def freeze(pid: int) -> None:
    """Stop the process, and return once no thread of it runs."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: _stands(pid), STOP_S, f"every thread of process {pid} has stopped")


def thaw(pid: int) -> None:
    os.kill(pid, signal.SIGCONT)


def _stands(pid: int) -> bool:
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            stat = (task / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):  # the thread has ended since the listing
            continue
        # The name, in brackets, may hold anything; the state follows the last bracket.
        if stat.rpartition(")")[2].split()[0] not in "TtZX":
            return False
    return True
