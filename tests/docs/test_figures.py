"""Limits of the code's complexity: sizes, imports, parameters, cycles; form of docstrings."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.docs.reference import ROOT
from tests.docs.source import PACKAGES, Function, functions, modules, trees

MOST_LINES_OF_A_FUNCTION = 60  # without its docstring
MOST_LINES_OF_A_MODULE = 600
MOST_IMPORTS = 16
MOST_PARAMETERS = 7
_QUESTION = re.compile(r"(?:What|Whether|Who|How|When|Somebody|Nobody)\b")
_IGNORED_FOLDERS = {"acceptance", "data", "docs", "kit", "promises"}


def test_no_function_is_too_long() -> None:
    found = {
        f"{path}:{node.lineno} {name}": length(node)
        for path, tree in trees(*PACKAGES).items()
        for name, node in functions(tree)
    }
    assert_within(found, MOST_LINES_OF_A_FUNCTION)


def test_no_module_is_too_long() -> None:
    found = {str(path): len(path.read_text("utf-8").splitlines()) for path in modules(*PACKAGES)}
    assert_within(found, MOST_LINES_OF_A_MODULE)


def test_no_module_imports_more_of_ours_than_one_can_follow() -> None:
    counts = {name: len(own_imports(tree)) for name, tree in trees(*PACKAGES).items()}
    assert_within(counts, MOST_IMPORTS)


def test_no_function_has_more_parameters_than_one_can_hold() -> None:
    counts: dict[str, int] = {}
    for path, tree in trees(*PACKAGES).items():
        for name, node in functions(tree):
            key = f"{path} {name}"
            counts[key] = max(parameters(node), counts.get(key, 0))
    assert len(counts) > 1000
    assert_within(counts, MOST_PARAMETERS)


def test_modules_and_packages_import_one_another_in_no_circle() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = (
        each
        for each in project["tool"]["importlinter"]["contracts"]
        if each["type"] == "acyclic_siblings"
    )
    assert set(contract["ancestors"]) == set(PACKAGES)
    assert "ignore_imports" not in contract


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_begin_with_a_verb_or_a_noun(package: str) -> None:
    found = [
        f"{path}: {text.splitlines()[0]}"
        for path, tree in trees(package).items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | Function)
        if (text := ast.get_docstring(node) or "") and _QUESTION.match(text)
    ]
    assert found == []


def test_tests_are_arranged_as_the_packages_are() -> None:
    folders = {
        path.parent.relative_to(ROOT / "tests") for path in ROOT.glob("tests/*/**/test_*.py")
    }
    strange = {each for each in folders if each.parts[0] not in _IGNORED_FOLDERS}
    assert len(strange) > 20
    assert [str(each) for each in strange if not is_package(ROOT / each)] == []


def length(function: Function) -> int:
    """Return the number of lines of a function without its docstring."""
    return _lines(function) - (_lines(function.body[0]) if ast.get_docstring(function) else 0)


def own_imports(tree: ast.Module) -> set[str]:
    """Return the names of our modules that a module imports, also inside functions."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name for name in names if name.partition(".")[0] in PACKAGES}


def parameters(function: Function) -> int:
    """Return the number of parameters, not counting `self` and `cls`."""
    given = function.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    bound = bool(named) and named[0].arg in {"self", "cls"}
    return len(named) - bound + bool(given.vararg) + bool(given.kwarg)


def assert_within(counts: Mapping[str, int], limit: int) -> None:
    """Assert that no count is above the limit; the failure names those that are."""
    over = {name: count for name, count in counts.items() if count > limit}
    assert over == {}, f"over the limit of {limit}"


def is_package(folder: Path) -> bool:
    """Return True for a folder with Python modules."""
    return any(folder.glob("*.py"))


def _lines(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1
