"""Linux process facts that the host and its supervisor rely on: death with the parent, sessions, orphans."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_POLL_S: Final = 0.01


def die_with_parent(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Ask the kernel to signal this process when the thread that started it ends; end now if it has ended
    already.
    """
    _prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Descendants whose parent ends become this process' children, so that it can end and reap them."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def prefer_for_oom() -> None:
    """When memory runs out, this process is the one to lose: its supervisor then settles the attempt at
    once.
    """
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("300")


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def members_of_session(session: int) -> list[int]:
    """Living processes of that session. A program may move its children to groups of their own, not
    sessions.
    """
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (facts := _stat(int(entry.name))) is not None:
            state, _, sid = facts
            if sid == session and state not in ("Z", "X"):
                found.append(int(entry.name))
    return found


def children_of(parent: int) -> list[int]:
    """Its living children, orphans it adopted included."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and (facts := _stat(int(entry.name))) is not None:
            state, ppid, _ = facts
            if ppid == parent and state not in ("Z", "X"):
                found.append(int(entry.name))
    return found


def signal_session(session: int, number: signal.Signals) -> None:
    for pid in members_of_session(session):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def kill_session(session: int, timeout_s: float) -> bool:
    """Kill every process of that session; True when none is left."""
    deadline = time.monotonic() + timeout_s
    while members_of_session(session):
        if time.monotonic() > deadline:
            return False
        signal_session(session, signal.SIGKILL)
        time.sleep(_POLL_S)
    return True


def end_orphans(timeout_s: float) -> bool:
    """Kill and reap every child of this process, those that its killed children leave to it included.

    Only for a process that adopts orphans and has no other child that should live.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        for pid in children_of(os.getpid()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return True
        if pid == 0:
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)


def _stat(pid: int) -> tuple[str, int, int] | None:
    """(state, parent, session) of a process, None if it is gone. The name in brackets may hold anything."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], int(fields[1]), int(fields[3])
