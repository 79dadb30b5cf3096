"""The project's own modules as syntax trees, for tests that hold the code against its rules."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
PACKAGES = ("remora_site", "jobs", "workers", "credentials")
PURE_CORES = ("jobs/protocol/", "credentials/protocol.py")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    path: str
    text: str
    tree: ast.Module

    @property
    def is_pure(self) -> bool:
        return self.path.startswith(PURE_CORES)

    def imports(self) -> Iterator[str]:
        """Every imported module by its full name, relative ones spelled out, wherever they are."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                parts = self.path.removesuffix(".py").split("/")
                above = parts[: -node.level] if node.level else []
                yield ".".join([*above, node.module or ""]).strip(".")

    def functions(self) -> Iterator[Function]:
        yield from (node for node in ast.walk(self.tree) if isinstance(node, Function))


@cache
def modules(*tops: str) -> tuple[Module, ...]:
    """The modules below these directories, but for generated migrations."""
    found = []
    for top in tops:
        for path in sorted((PROJECT / top).rglob("*.py")):
            name = path.relative_to(PROJECT).as_posix()
            if "/migrations/" not in name:
                text = path.read_text()
                found.append(Module(name, text, ast.parse(text, name)))
    return tuple(found)
