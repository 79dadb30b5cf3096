"""docs/protocol.md names every action of the module, and everything that it names exists."""

import ast
import re
from pathlib import Path

import pytest

from credentials.protocol import ACTIONS as CREDENTIAL_ACTIONS
from credentials.protocol import INVARIANTS as CREDENTIAL_INVARIANTS
from jobs.protocol.decision import ACTIONS
from jobs.protocol.invariants import FLEET_INVARIANTS, INVARIANTS
from jobs.protocol.properties import PROPERTIES

PROJECT = Path(__file__).resolve().parents[2]
PAGE = (PROJECT / "docs/protocol.md").read_text()
MODULE = (PROJECT / "docs/spec/RemoraX.tla").read_text()
ROWS = {
    cells[0]: cells
    for line in PAGE.splitlines()
    if line.startswith("| ") and len(cells := [cell.strip() for cell in line.strip("|").split("|")]) == 5
}
PLACE = re.compile(r"`([\w/.]+\.(?:py|lua))(?:::(\w+))?`")
LINK = re.compile(r"\]\(([^)#]+)\)")


def actions_of_the_module() -> set[str]:
    """The disjuncts of JobNext and CredentialNext."""
    nexts = re.findall(r"^(?:JobNext|CredentialNext) ==\n((?:  .*\n)+)", MODULE, flags=re.MULTILINE)
    assert len(nexts) == 2
    text = "".join(nexts)
    return set(re.findall(r"(?:^  \\/|:)\s+([A-Z]\w+)(?=\(|\n)", text, flags=re.MULTILINE))


def defined_in(path: str) -> set[str]:
    nodes = ast.walk(ast.parse((PROJECT / path).read_text()))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def test_the_module_has_the_actions_that_the_code_has() -> None:
    assert len(actions_of_the_module()) == 44
    assert actions_of_the_module() == ACTIONS.keys() | CREDENTIAL_ACTIONS.keys()


def test_every_action_has_a_row_and_every_row_is_an_action() -> None:
    assert ROWS.keys() - {"action", "---"} == actions_of_the_module()


@pytest.mark.parametrize("action", sorted(actions_of_the_module()))
def test_the_row_names_the_actions_own_function(action: str) -> None:
    spec = (ACTIONS | CREDENTIAL_ACTIONS)[action]
    path = spec.function.__module__.replace(".", "/") + ".py"
    assert f"`{path}::{spec.function.__name__}`" in ROWS[action][1]


@pytest.mark.parametrize("action", sorted(actions_of_the_module()))
def test_the_row_names_tests(action: str) -> None:
    assert PLACE.findall(ROWS[action][4])


def test_every_file_and_function_that_is_named_exists() -> None:
    places = set(PLACE.findall(PAGE))
    assert len(places) > 80
    absent = [
        f"{path}::{name}"
        for path, name in sorted(places)
        if not (PROJECT / path).is_file() or (name and name not in defined_in(path))
    ]
    assert not absent


def test_every_link_leads_somewhere() -> None:
    assert not [link for link in LINK.findall(PAGE) if not (PROJECT / "docs" / link).is_file()]


def test_every_invariant_and_property_of_the_module_is_checked_and_named() -> None:
    text = MODULE[MODULE.index("\nTypeOK ==") :]
    invariants = set(
        re.findall(r"^([A-Z]\w+) ==\n", text[: text.index("TerminalStep ==")], flags=re.MULTILINE)
    )
    properties = set(re.findall(r"^(\w+) == \[\]\[", MODULE, flags=re.MULTILINE))
    checked = INVARIANTS.keys() | FLEET_INVARIANTS.keys() | CREDENTIAL_INVARIANTS.keys()
    assert invariants == checked
    assert properties == PROPERTIES.keys()
    assert not [name for name in (invariants | properties) - {"TypeOK"} if name not in PAGE]


def test_every_lua_script_of_an_action_is_named() -> None:
    scripts = {path.stem for path in (PROJECT / "workers/coordination/lua").glob("*.lua")}
    functions = {spec.function.__name__ for spec in ACTIONS.values()}
    for name in scripts & functions:
        assert f"workers/coordination/lua/{name}.lua" in PAGE
