"""The house rule: a function has at most 50 lines, a module at most 350."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.reference import ROOT

PACKAGES = ("agent_server", "harnesses", "llm", "storage")
FUNCTION, MODULE = 50, 350


def modules(package: str) -> Iterator[Path]:
    return (ROOT / package).rglob("*.py")


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Each function of a module with its number of lines, its docstring included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield f"{path.name}:{node.lineno} {node.name}", node.end_lineno - node.lineno + 1


@pytest.mark.parametrize("package", PACKAGES)
def test_no_function_is_longer_than_a_page(package: str) -> None:
    found = [item for path in modules(package) for item in functions(path)]
    assert found
    assert [(name, length) for name, length in found if length > FUNCTION] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_is_more_than_one_noun(package: str) -> None:
    lengths = {
        path: len(path.read_text(encoding="utf-8").splitlines()) for path in modules(package)
    }
    assert {path.name: length for path, length in lengths.items() if length > MODULE} == {}
