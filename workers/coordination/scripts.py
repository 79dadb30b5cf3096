"""The Lua scripts: loaded from package data, their headers parsed and checked, their includes put together.

The header on top of each script is its contract, and not a comment only: KEYS names the keys of keys.py
that it is given, ARGV and ELEMENT name its arguments, USES names the files under lua/include/ that it
starts with. From them comes the preamble that gives the script `KEY.permits`, `ARG.lease_ms` and, per
element, `e.job`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

from workers.coordination.keys import NAMES

SECTIONS: Final = ("ATOMIC", "KEYS", "ARGV", "ELEMENT", "REPLIES", "USES")
NONE: Final = "-"
_SECTION = re.compile(r"^-- ([A-Z]+)\s+(.*)$")
_NAME = re.compile(r"^[a-z_]+$")


class ScriptInvalid(Exception):
    """A script's header is missing, incomplete, or names what does not exist. Found when the scripts are
    loaded.
    """

    def __init__(self, script: str, what: str) -> None:
        super().__init__(f"lua/{script}.lua: {what}")


@dataclass(frozen=True, slots=True)
class Contract:
    """A script's header."""

    purpose: str
    atomic: str
    keys: tuple[str, ...]
    argv: tuple[str, ...]
    element: tuple[str, ...]
    replies: tuple[str, ...]
    uses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Script:
    """One script, ready to run."""

    name: str
    contract: Contract
    body: str
    source: str
    sha: str

    def arguments(
        self, given: Mapping[str, str | int], elements: Iterable[Mapping[str, str | int]]
    ) -> list[str | int]:
        """ARGV in the header's order. A name that the header has not, or that is missing, is a KeyError
        here.
        """
        argv = _in_order(self.contract.argv, given)
        for element in elements:
            argv.extend(_in_order(self.contract.element, element))
        return argv


def _in_order(names: tuple[str, ...], given: Mapping[str, str | int]) -> list[str | int]:
    if unknown := given.keys() - set(names):
        raise KeyError(f"The script knows no argument {sorted(unknown)}.")
    return [given[name] for name in names]


def parse_contract(script: str, text: str) -> Contract:
    """The header of a script, checked."""
    found: dict[str, str] = {"PURPOSE": ""}
    section = "PURPOSE"
    for line in _header_lines(text):
        if match := _SECTION.match(line):
            section = match[1]
            if section not in SECTIONS or section in found:
                raise ScriptInvalid(script, f"section {section} is unknown or written twice")
            found[section] = match[2]
        else:
            found[section] += " " + line.removeprefix("--").strip()
    if missing := [name for name in SECTIONS if not found.get(name, "").strip()]:
        raise ScriptInvalid(script, f"the header lacks {', '.join(missing)}")
    if ":" not in found["PURPOSE"]:
        raise ScriptInvalid(script, "the header does not begin with `Action(...): purpose`")
    contract = Contract(
        purpose=found["PURPOSE"].strip(),
        atomic=found["ATOMIC"].strip(),
        keys=_names(script, found["KEYS"]),
        argv=_names(script, found["ARGV"]),
        element=_names(script, found["ELEMENT"]),
        replies=_names(script, found["REPLIES"].replace("|", " ")),
        uses=_names(script, found["USES"]),
    )
    if unknown := set(contract.keys) - set(NAMES):
        raise ScriptInvalid(script, f"no such key: {', '.join(sorted(unknown))}")
    if contract.argv[:1] != ("nonce",):
        raise ScriptInvalid(script, "the first of ARGV is the nonce of an epoch")
    return contract


def _header_lines(text: str) -> list[str]:
    lines = []
    for line in text.splitlines():
        if not line.startswith("--"):
            break
        lines.append(line)
    return lines


def _names(script: str, listed: str) -> tuple[str, ...]:
    names = tuple(listed.split())
    if names == (NONE,):
        return ()
    if wrong := [name for name in names if not _NAME.match(name)]:
        raise ScriptInvalid(script, f"not a name: {', '.join(wrong)}")
    if len(set(names)) != len(names):
        raise ScriptInvalid(script, f"a name twice in: {listed}")
    return names


def _preamble(contract: Contract) -> str:
    keys = ", ".join(f"{name} = KEYS[{place}]" for place, name in enumerate(contract.keys, 1))
    argv = ", ".join(f"{name} = ARGV[{place}]" for place, name in enumerate(contract.argv, 1))
    element = ", ".join(f"'{name}'" for name in contract.element)
    return (
        f"local KEY = {{ {keys} }}\n"
        f"local ARG = {{ {argv} }}\n"
        f"local ARGUMENTS = {len(contract.argv)}\n"
        f"local ELEMENT = {{ {element} }}\n"
    )


def assemble(name: str, body: str, includes: Mapping[str, str]) -> Script:
    """A script out of its file and the files it uses."""
    contract = parse_contract(name, body)
    if unknown := set(contract.uses) - includes.keys():
        raise ScriptInvalid(name, f"no such include: {', '.join(sorted(unknown))}")
    source = "\n".join((_preamble(contract), *(includes[one] for one in contract.uses), body))
    sha = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
    return Script(name, contract, body, source, sha)


@cache
def load_scripts() -> Mapping[str, Script]:
    """All scripts by name."""
    folder = resources.files(__package__) / "lua"
    includes = {
        entry.name.removesuffix(".lua"): entry.read_text("utf-8")
        for entry in (folder / "include").iterdir()
        if entry.name.endswith(".lua")
    }
    bodies = {
        entry.name.removesuffix(".lua"): entry.read_text("utf-8")
        for entry in folder.iterdir()
        if entry.name.endswith(".lua")
    }
    return {name: assemble(name, body, includes) for name, body in sorted(bodies.items())}
