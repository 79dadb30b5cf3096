"""Brings up real servers for a test run, before Django reads its settings, and takes them down after it.

Loaded by name (`-p tests.stack_plugin`): a conftest would be too late, pytest-django reads settings first.
The controller starts the stack in a home of its own, so runs side by side do not meet; pytest-xdist's workers
inherit its address and get a key prefix each. Runs of pure tests alone, which need no server, start none.
"""

import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from remora_site import stack

PURE = ("tests/protocol", "tests/model", "tests/architecture")


class StackOwner:
    """Holds what the controller has to take down again."""

    def __init__(self, home: Path, keep: bool) -> None:
        self.home, self.keep = home, keep

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        if self.keep:
            return
        stack.down(self.home)
        shutil.rmtree(self.home, ignore_errors=True)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, object, object]:
    if worker := os.environ.get("PYTEST_XDIST_WORKER"):
        use_own_prefix(worker)
    elif needs_servers(early_config):
        owner = start_stack()
        early_config.pluginmanager.register(owner, "remora-stack")
        use_own_prefix("main")
    else:
        os.environ["REMORA_HOME"] = (
            os.environ.get("REMORA_HOME") or tempfile.gettempdir() + "/remora-no-stack"
        )
    return (yield)


def use_own_prefix(worker: str) -> None:
    os.environ["REMORA_REDIS_PREFIX"] = f"{{remora-{worker}}}:"


def needs_servers(config: pytest.Config) -> bool:
    options = config.known_args_namespace
    if options.help or options.version or options.collectonly:
        return False
    # Positional arguments that are not paths do not exist here: pytest itself says so later.
    named = [Path(argument.split("::")[0]).resolve() for argument in options.file_or_dir]
    pure = [config.rootpath / directory for directory in PURE]
    return not named or not all(any(path.is_relative_to(directory) for directory in pure) for path in named)


def start_stack() -> StackOwner:
    given = os.environ.get("REMORA_TEST_HOME")
    keep = os.environ.get("REMORA_TEST_KEEP_STACK", "") not in ("", "0")
    if given:
        home = Path(given).resolve()
    elif keep:
        home = Path(__file__).resolve().parents[1] / ".remora-test"
    else:
        home = Path(tempfile.mkdtemp(prefix="remora-test-"))
        home.chmod(0o711)
    os.environ["REMORA_HOME"] = str(home)
    os.environ["REMORA_STACK_FAST"] = "1"
    try:
        stack.up(home)
    except stack.StackFailure as failure:
        raise pytest.UsageError(f"The servers for the tests did not start. {failure}") from failure
    return StackOwner(home, keep)
