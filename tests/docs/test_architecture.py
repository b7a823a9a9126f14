"""docs/architecture.md and the other developer documents name only existing paths and names, and
the architecture has every package."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.reference import ROOT
from tests.docs.source import PACKAGES

ARCHITECTURE, GLOSSARY = ROOT / "docs" / "architecture.md", ROOT / "docs" / "glossary.md"
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
DOCUMENTS = (
    ARCHITECTURE,
    GLOSSARY,
    ROOT / "docs" / "debugging.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *DECISIONS,
)
LONGEST_DECISION = 30
"""Lines of a decision record."""


@cache
def names_in(path: Path) -> frozenset[str]:
    """Return the top-level names of a module, and `Class.method` for the methods of its classes."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        if isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        if isinstance(node, ast.ClassDef):
            names |= {
                f"{node.name}.{inner.name}"
                for inner in node.body
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return frozenset(names)


def flat(path: Path) -> str:
    """Return the text of a document with all whitespace collapsed."""
    return " ".join(path.read_text(encoding="utf-8").split())


def named(text: str) -> list[tuple[str, str]]:
    """Return each pair of a path and a name that are mentioned together."""
    before = re.findall(r"`([\w/]+\.py)` `([\w.]+)`", text)
    after = re.findall(r"`([\w.]+)` (?:of|in) `([\w/]+\.py)`", text)
    return [*before, *((path, name) for name, path in after)]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_path_in_the_map_exists(document: Path) -> None:
    paths = re.findall(r"`((?:agent_server|harnesses|llm|storage|tests)/[\w./-]+)`", flat(document))
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_name_in_the_map_is_defined_where_it_says(document: Path) -> None:
    missing = [
        f"{path} {name}"
        for path, name in named(flat(document))
        if not (ROOT / path).exists() or name not in names_in(ROOT / path)
    ]
    assert missing == []


def test_the_map_and_the_glossary_name_their_functions_and_classes() -> None:
    assert len(named(flat(ARCHITECTURE))) >= 60
    assert len(named(flat(GLOSSARY))) >= 30


@pytest.mark.parametrize("package", PACKAGES)
def test_every_sub_package_is_in_the_map(package: str) -> None:
    text = ARCHITECTURE.read_text(encoding="utf-8")
    folders = [path.parent for path in (ROOT / package).glob("*/__init__.py")]
    assert folders
    assert [folder.name for folder in folders if f"{folder.name}/" not in text] == []


def test_decisions_are_numbered_and_short() -> None:
    assert [path.name[:4] for path in DECISIONS] == [
        f"{number:04}" for number in range(1, len(DECISIONS) + 1)
    ]
    for path in DECISIONS:
        text = path.read_text(encoding="utf-8")
        for part in ("## Context", "## Decision", "## Consequences"):
            assert part in text, path.name
        assert len(text.splitlines()) <= LONGEST_DECISION, path.name
