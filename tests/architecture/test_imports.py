"""Who may import what: the order of the packages, and which module alone speaks to which store."""

import sys

import pytest
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

from tests.architecture.sources import PACKAGES, PROJECT, Module, modules

IMPURE = {
    "asyncio", "datetime", "http", "io", "logging", "multiprocessing", "os", "pathlib", "random", "secrets",
    "shutil", "signal", "socket", "subprocess", "tempfile", "threading", "time", "urllib", "uuid",
}  # fmt: skip
UNSAFE = {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve"}


def roots(module: Module) -> set[str]:
    return {name.partition(".")[0] for name in module.imports()}


def importers(library: str) -> set[str]:
    return {module.path for module in modules(*PACKAGES) if library in roots(module)}


def test_the_import_contracts_hold(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = lint_imports(config_filename=str(PROJECT / "pyproject.toml"), cache_dir=None)
    assert outcome == EXIT_STATUS_SUCCESS, capsys.readouterr().out


@pytest.mark.parametrize("module", [m for m in modules(*PACKAGES) if m.is_pure], ids=lambda m: m.path)
def test_a_pure_core_imports_only_itself_and_pure_standard_modules(module: Module) -> None:
    package = "jobs.protocol" if module.path.startswith("jobs/") else "credentials.protocol"
    foreign = {
        name
        for name in module.imports()
        if not (name == package or name.startswith(f"{package}."))
        and (name.partition(".")[0] not in sys.stdlib_module_names or name.partition(".")[0] in IMPURE)
    }
    assert not foreign


def test_only_the_coordination_store_speaks_to_redis() -> None:
    assert {path for path in importers("redis") if not path.startswith("workers/coordination/")} == set()


def test_only_the_vault_adapter_speaks_to_vault() -> None:
    assert importers("hvac") <= {"credentials/vault.py"}


def test_only_entry_points_know_celery() -> None:
    for library in ("celery", "kombu"):
        strangers = {
            path
            for path in importers(library)
            if not path.startswith(("remora_site/", "workers/celery_")) and not path.endswith("/tasks.py")
        }
        assert strangers == set()


def test_nothing_unpickles() -> None:
    assert {module.path for module in modules(*PACKAGES) if roots(module) & UNSAFE} == set()
