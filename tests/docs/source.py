"""Syntax trees of the product's source, for tests of its structure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache

from tests.docs.reference import ROOT

PACKAGES = ("agent_server", "harnesses", "llm", "storage", "terrarium")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@cache
def trees() -> dict[str, ast.Module]:
    """Return the tree of each module by its path, `llm/prompt/builder.py`."""
    return {
        path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
    }


def functions(tree: ast.Module) -> Iterator[tuple[str, Function]]:
    """Yield each function and method with its name, `Class.method` for those of a class."""
    owners = {
        id(child): f"{node.name}."
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for child in node.body
    }
    for node in ast.walk(tree):
        if isinstance(node, Function):
            yield owners.get(id(node), "") + node.name, node
