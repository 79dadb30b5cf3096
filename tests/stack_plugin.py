"""Brings up real servers for a test run, before Django reads its settings, and takes them down after it.

Loaded by name (`-p tests.stack_plugin`): a conftest would be too late, pytest-django reads settings first.
The controller starts the stack in a home of its own, so runs side by side do not meet; pytest-xdist's workers
inherit its address and get a key prefix each. Runs of pure tests alone, which need no server, start none.

REMORA_TEST_KEEP_STACK=1 leaves the servers running, in .remora-test, for the next run; REMORA_TEST_HOME=DIR
says where they live.
"""

import fcntl
import os
import shutil
import signal
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from remora_site import stack

PURE = ("tests/protocol", "tests/model", "tests/architecture", "tests/transfers")
PROJECT = Path(__file__).resolve().parents[1]
HOME_PREFIX = "remora-test-"


class StackOwner:
    """Holds what the controller has to take down again, and a lock that says that it still lives."""

    def __init__(self, home: Path, keep: bool) -> None:
        self.home, self.keep = home, keep
        self._lock = os.open(home / "owner.lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_SH)

    def release(self) -> None:
        os.close(self._lock)
        if self.keep:
            return
        stack.down(self.home)
        if self.home.name.startswith(HOME_PREFIX):
            shutil.rmtree(self.home, ignore_errors=True)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, object, object]:
    if worker := os.environ.get("PYTEST_XDIST_WORKER"):
        use_own_prefix(worker)
    elif needs_servers(early_config):
        early_config.add_cleanup(start_stack().release)
        use_own_prefix("main")
    else:
        os.environ.setdefault("REMORA_HOME", f"{tempfile.gettempdir()}/remora-no-stack-{os.geteuid()}")
    return (yield)


def use_own_prefix(worker: str) -> None:
    os.environ["REMORA_REDIS_PREFIX"] = f"{{remora-{worker}}}:"


def needs_servers(config: pytest.Config) -> bool:
    options = config.known_args_namespace
    if options.help or options.version or options.collectonly:
        return False
    named = [Path(argument.split("::")[0]).resolve() for argument in options.file_or_dir]
    pure = [PROJECT / directory for directory in PURE]
    return not named or not all(any(path.is_relative_to(directory) for directory in pure) for path in named)


def start_stack() -> StackOwner:
    keep = os.environ.get("REMORA_TEST_KEEP_STACK", "") not in ("", "0")
    if given := os.environ.get("REMORA_TEST_HOME"):
        home = Path(given).resolve()
    elif keep:
        home = PROJECT / ".remora-test"
    else:
        remove_homes_of_killed_runs()
        home = Path(tempfile.mkdtemp(prefix=HOME_PREFIX))
        home.chmod(0o711)  # PostgreSQL's user passes through
    home.mkdir(parents=True, exist_ok=True)
    owner = StackOwner(home, keep)
    os.environ |= {"REMORA_HOME": str(home), "REMORA_STACK_FAST": "1"}
    # A run that is told to end takes its servers down as if by Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        stack.up(home)
    except BaseException as failure:
        owner.release()
        if isinstance(failure, stack.StackFailure):
            raise pytest.UsageError(f"The servers for the tests did not start. {failure}") from failure
        raise
    return owner


def remove_homes_of_killed_runs() -> None:
    """Whoever holds no lock any more was killed before it could take its servers down."""
    for home in Path(tempfile.gettempdir()).glob(f"{HOME_PREFIX}*"):
        try:
            handle = os.open(home / "owner.lock", os.O_RDWR)
        except OSError:
            continue  # another user's, or one that is just being made
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            stack.down(home)
            shutil.rmtree(home, ignore_errors=True)
        except (BlockingIOError, stack.StackFailure):
            continue
        finally:
            os.close(handle)
