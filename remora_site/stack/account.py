"""Which user a server runs as: PostgreSQL refuses root, so there it runs as `nobody`; no user is created."""

import os
import pwd
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Account:
    """A user to become; `keep_access` where the way to the files is open to root alone (as under /root)."""

    uid: int
    gid: int
    keep_access: bool


def unprivileged_account(data: Path, executables: Iterable[Path]) -> Account | None:
    """None: run as whoever runs us. Data that exists keeps its owner."""
    if os.geteuid() != 0:
        return None
    nobody = pwd.getpwnam("nobody")
    uid, gid = nobody.pw_uid, nobody.pw_gid
    if data.exists() and data.stat().st_uid != 0:
        uid, gid = data.stat().st_uid, data.stat().st_gid
    open_way = may_enter(data.parent) and all(
        may_enter(file.parent) and may_run(file) for file in executables
    )
    return Account(uid, gid, keep_access=not open_way)


def may_enter(directory: Path) -> bool:
    """Whether any user may pass through every directory down to this one."""
    return all(step.stat().st_mode & stat.S_IXOTH for step in (directory, *directory.parents))


def may_run(file: Path) -> bool:
    wanted = stat.S_IROTH | stat.S_IXOTH
    return file.stat().st_mode & wanted == wanted
