"""The size rule: a function has at most 60 lines without its docstring, a module at most 600."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.reference import ROOT

PACKAGES = ("agent_server", "harnesses", "llm", "storage", "terrarium")
FUNCTION, MODULE = 60, 600


def modules(package: str) -> Iterator[Path]:
    return (ROOT / package).rglob("*.py")


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Yield each function of a module with its number of lines, its docstring left out."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = _lines(node) - (_lines(node.body[0]) if ast.get_docstring(node) else 0)
            yield f"{path.name}:{node.lineno} {node.name}", length


def _lines(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1


@pytest.mark.parametrize("package", PACKAGES)
def test_no_function_is_too_long(package: str) -> None:
    found = [item for path in modules(package) for item in functions(path)]
    assert found
    assert [(name, length) for name, length in found if length > FUNCTION] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_module_is_too_long(package: str) -> None:
    lengths = {
        path: len(path.read_text(encoding="utf-8").splitlines()) for path in modules(package)
    }
    assert {path.name: length for path, length in lengths.items() if length > MODULE} == {}
