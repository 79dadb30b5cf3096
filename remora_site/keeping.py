"""Small files of this deployment that must be private and whole: written once, kept for the next start."""

import os
import secrets
import tempfile
from pathlib import Path


def write_private(path: Path, text: str) -> None:
    """Replace the file in one step; nobody but its owner may ever read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # 0600 from the start
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def kept_secret(path: Path) -> str:
    """The secret kept in this file; made up by whoever needs it first, also when several do at once."""
    try:
        return path.read_text()
    except FileNotFoundError:
        pass
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "w") as file:
        file.write(secrets.token_urlsafe(48))
    try:
        os.link(name, path)  # unlike a rename, this leaves the one that was first
    except FileExistsError:
        pass
    finally:
        os.unlink(name)
    return path.read_text()
