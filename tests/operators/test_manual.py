"""What the manual says exists, exists; what exists is in the manual."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.core.management import get_commands, load_command_class

from tests.operators.shell import PROJECT
from workers.management.console import Exit, RemoraCommand

PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))]
OPERATIONS = (PROJECT / "docs/operations.md").read_text()
SETTINGS = set(re.findall(r'env\.\w+\("([A-Z_]+)"', (PROJECT / "remora_site/settings.py").read_text()))
OWN = sorted(name for name, app in get_commands().items() if app in {"workers", "remora_site", "jobs"})


def test_every_setting_is_in_the_manual() -> None:
    missing = {name for name in SETTINGS if not re.search(rf"\b{name}\b", OPERATIONS)}
    assert not missing


def test_the_manual_names_no_setting_that_is_not_there() -> None:
    named = set(re.findall(r"\bREMORA_[A-Z_]+\b", "".join(page.read_text() for page in PAGES)))
    assert named - SETTINGS == set()


@pytest.mark.parametrize("name", OWN)
def test_every_command_is_in_the_manual_and_takes_json(name: str) -> None:
    assert f"`{name}" in OPERATIONS
    command = load_command_class(get_commands()[name], name)
    if isinstance(command, RemoraCommand):
        text = command.create_parser("manage.py", name).format_help()
        assert "--json" in text
        assert "examples:" in text
        assert "exit codes:" in text


def test_the_manual_lists_every_exit_code() -> None:
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", OPERATIONS, flags=re.MULTILINE)}
    assert listed == {code.value for code in Exit}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)", page.read_text())
    broken = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not broken


def test_every_decision_is_in_the_index() -> None:
    index = (PROJECT / "docs/decisions/README.md").read_text()
    pages = {page.name for page in (PROJECT / "docs/decisions").glob("[0-9]*.md")}
    assert {name for name in pages if name not in index} == set()
