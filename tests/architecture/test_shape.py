"""Sizes and habits: small functions and modules, an opening word, tests without sleeps or stand-ins."""

import ast

import pytest

from tests.architecture.sources import PACKAGES, Function, Module, modules

FUNCTION_LINES_MAX = 70
CORE_FUNCTION_LINES_MAX = 30
MODULE_LINES_MAX = 300
EVERYTHING = modules(*PACKAGES, "tests")


def length(function: Function) -> int:
    """Lines of the body: neither its signature nor what explains it makes a function longer."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


@pytest.mark.parametrize("module", EVERYTHING, ids=lambda module: module.path)
def test_functions_and_modules_are_small(module: Module) -> None:
    limit = CORE_FUNCTION_LINES_MAX if module.is_pure else FUNCTION_LINES_MAX
    too_long = {
        function.name: length(function) for function in module.functions() if length(function) > limit
    }
    assert not too_long
    assert module.text.count("\n") <= MODULE_LINES_MAX


@pytest.mark.parametrize("module", modules(*PACKAGES), ids=lambda module: module.path)
def test_a_module_opens_by_saying_what_lives_there(module: Module) -> None:
    assert not module.text.strip() or ast.get_docstring(module.tree)


@pytest.mark.parametrize("module", modules("tests"), ids=lambda module: module.path)
def test_tests_neither_sleep_nor_replace_real_parts(module: Module) -> None:
    sleeps = [
        node.lineno
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute)
        and node.attr == "sleep"
        and isinstance(node.value, ast.Name)
        and node.value.id == "time"
    ]
    assert module.path == "tests/waiting.py" or not sleeps
    assert not any(name.startswith(("unittest.mock", "mock", "fakeredis")) for name in module.imports())
