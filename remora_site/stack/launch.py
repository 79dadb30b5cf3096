"""Turns one process into a server: run as a script by a fresh interpreter, never imported.

A separate interpreter because giving up root and forking are unsafe in a process that has threads. It reads
one JSON object from its standard input, becomes (or starts) the command, and prints the daemon's process id.

The daemon inherits an exclusive lock on a file. "Is it alive" is then "is the lock held": true through
crashes, reboots and reused process ids: the kernel drops the lock with the last process that inherited it.
"""

import ctypes
import fcntl
import json
import os
import sys
import time
from typing import Any, NoReturn

LOCK_WAIT_S = 2.0
EXIT_ALREADY_RUNNING = 75
EXIT_NOT_STARTED = 71

PR_SET_SECUREBITS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE = 28, 47, 2
SECBIT_NO_SETUID_FIXUP = 1 << 2
CAP_DAC_OVERRIDE = 1
CAPABILITY_VERSION_3 = 0x20080522


def take_lock(path: str) -> int:
    """The lock as an inheritable descriptor. Whoever looks at it holds it for an instant: hence the wait."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                sys.exit(EXIT_ALREADY_RUNNING)
            time.sleep(0.02)
        else:
            os.set_inheritable(handle, True)
            return handle


def become(user: dict[str, Any]) -> None:
    """Give up root for good. Where the way to the files is open to root alone, keep the right to pass it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if user["keep_access"]:
        # Rights outlive the change of user, and access(2), which PostgreSQL asks, counts them.
        permitted(libc.prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0))
    os.setgroups([])
    os.setresgid(user["gid"], user["gid"], user["gid"])
    os.setresuid(user["uid"], user["uid"], user["uid"])
    if user["keep_access"]:
        keep_file_access(libc)


def keep_file_access(libc: ctypes.CDLL) -> None:
    bit = 1 << CAP_DAC_OVERRIDE
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)(bit, bit, bit)  # effective, permitted, inheritable; the high words stay zero
    permitted(libc.capset(header, sets))
    permitted(libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_DAC_OVERRIDE, 0, 0))


def permitted(answer: int) -> None:
    if answer != 0:
        raise OSError(ctypes.get_errno(), "no right to let the server's user pass directories of root alone")


def run(order: dict[str, Any], log: int) -> NoReturn:
    """Become the command, with the log as both outputs."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        os.chdir(order["directory"])
        if order["user"] is not None:
            become(order["user"])
        os.execve(order["command"][0], order["command"], order["environment"])  # noqa: S606
    except OSError as error:
        os.write(2, f"cannot run {order['command'][0]}: {error}\n".encode())
        os._exit(EXIT_NOT_STARTED)


def main() -> None:
    order = json.load(sys.stdin)
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    if not order["daemon"]:
        run(order, log)
    take_lock(order["lock"])
    child = os.fork()
    if child == 0:
        os.setsid()
        run(order, log)
    sys.stdout.write(f"{child}\n")


if __name__ == "__main__":
    main()
