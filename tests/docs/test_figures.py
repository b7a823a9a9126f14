"""Limits of what a reader has to hold in mind: sizes, imports, parameters, circles, first lines.

A list of exceptions names what is over its limit today. It may only become shorter: nothing new
comes in, and what is within the limit leaves the list.
"""

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
MOST_IMPORTS = 15
IMPORTS_TODAY = {
    "agent_server/app.py": 25,
    "agent_server/models/served_model.py": 16,
    "harnesses/core/tendril/base.py": 26,
    "harnesses/core/tendril/responder.py": 32,
    "harnesses/cron/tendril.py": 16,
    "harnesses/irc/commands/registry.py": 16,
    "harnesses/irc/questions/handler.py": 19,
    "harnesses/irc/questions/proactive.py": 29,
    "harnesses/irc/tendril.py": 34,
    "llm/memory/memory.py": 22,
}
MOST_PARAMETERS = 7
PARAMETERS_TODAY = {
    "agent_server/auth/cli.py create": 9,
    "harnesses/core/tendril/responder.py Responder.__init__": 10,
    "harnesses/logs/cli.py import_": 8,
    "harnesses/logs/cli.py export": 9,
    "harnesses/web/api/routes.py search": 9,
    "llm/agent/agent_loop.py AgentLoop.__init__": 9,
    "llm/prompt/compact_context.py CompactPromptContext.__init__": 9,
    "llm/prompt/context_manager.py PromptContext.__init__": 9,
    "llm/tools/toolbox.py tool": 8,
    "storage/queues/jobs.py Jobs.add": 8,
}
CIRCLES_TODAY = {
    "harnesses.core.tendril.turn_request -> harnesses.core.tendril.turn_result",
    "harnesses.irc.commands.reminders -> harnesses.irc.tendril",
    "harnesses.irc.ircd.client -> harnesses.irc.ircd.server",
    "harnesses.irc.ircd.command_table -> harnesses.irc.ircd.server",
    "harnesses.irc.questions.handler -> harnesses.irc.tendril",
    "harnesses.irc.questions.proactive -> harnesses.irc.tendril",
    "harnesses.irc.transport.connection -> harnesses.irc.transport.network",
    "llm.memory.room -> llm.memory.memory",
    "storage.db.migration -> storage.chat_log.rebuild",
    "storage.runs.runs -> storage.privacy.quote_detector",
}
"""Imports that import-linter's contract against circles ignores."""

QUESTIONS_TODAY = {
    "agent_server": 126,
    "harnesses": 186,
    "llm": 185,
    "storage": 130,
    "terrarium": 9,
    "tests": 82,
    "benchmarks": 43,
}
_QUESTION = re.compile(r"(?:What|Whether|Who|How|When|Somebody|Nobody)\b")
_IGNORED_FOLDERS = {"acceptance", "data", "docs", "kit"}


def test_no_function_is_too_long() -> None:
    found = {
        f"{path}:{node.lineno} {name}": length(node)
        for path, tree in trees(*PACKAGES).items()
        for name, node in functions(tree)
    }
    assert_no_worse(found, MOST_LINES_OF_A_FUNCTION, {})


def test_no_module_is_too_long() -> None:
    found = {str(path): len(path.read_text("utf-8").splitlines()) for path in modules(*PACKAGES)}
    assert_no_worse(found, MOST_LINES_OF_A_MODULE, {})


def test_no_module_imports_more_of_ours_than_one_can_follow() -> None:
    counts = {name: len(own_imports(tree)) for name, tree in trees(*PACKAGES).items()}
    assert_no_worse(counts, MOST_IMPORTS, IMPORTS_TODAY)


def test_no_function_has_more_parameters_than_one_can_hold() -> None:
    counts: dict[str, int] = {}
    for path, tree in trees(*PACKAGES).items():
        for name, node in functions(tree):
            key = f"{path} {name}"
            counts[key] = max(parameters(node), counts.get(key, 0))
    assert len(counts) > 1000
    assert_no_worse(counts, MOST_PARAMETERS, PARAMETERS_TODAY)


def test_modules_and_packages_import_one_another_in_no_circle() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = (
        each
        for each in project["tool"]["importlinter"]["contracts"]
        if each["type"] == "acyclic_siblings"
    )
    assert set(contract["ancestors"]) == set(PACKAGES)
    assert set(contract.get("ignore_imports", [])) == CIRCLES_TODAY


@pytest.mark.parametrize("package", QUESTIONS_TODAY)
def test_docstrings_begin_with_a_verb_or_a_noun(package: str) -> None:
    found = [
        f"{path}: {text.splitlines()[0]}"
        for path, tree in trees(package).items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | Function)
        if (text := ast.get_docstring(node) or "") and _QUESTION.match(text)
    ]
    assert len(found) <= QUESTIONS_TODAY[package], "\n".join(found)


def test_tests_are_arranged_as_the_packages_are() -> None:
    folders = {
        path.parent.relative_to(ROOT / "tests") for path in ROOT.glob("tests/*/**/test_*.py")
    }
    strange = {each for each in folders if each.parts[0] not in _IGNORED_FOLDERS}
    assert len(strange) > 20
    assert [str(each) for each in strange if not is_package(ROOT / each)] == []


def length(function: Function) -> int:
    """Return the lines of a function, its docstring left out."""
    return _lines(function) - (_lines(function.body[0]) if ast.get_docstring(function) else 0)


def own_imports(tree: ast.Module) -> set[str]:
    """Return the names of our modules that a module imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name for name in names if name.partition(".")[0] in PACKAGES}


def parameters(function: Function) -> int:
    """Return how many parameters a caller can give: `self` and `cls` are not counted."""
    given = function.args
    named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    bound = bool(named) and named[0].arg in {"self", "cls"}
    return len(named) - bound + bool(given.vararg) + bool(given.kwarg)


def assert_no_worse(counts: Mapping[str, int], limit: int, today: Mapping[str, int]) -> None:
    """Compare with a limit and its exceptions, in both directions."""
    over = {name: count for name, count in counts.items() if count > limit}
    worse = {name: count for name, count in over.items() if count > today.get(name, limit)}
    assert worse == {}, f"over the limit of {limit}"
    assert sorted(today.keys() - over.keys()) == [], "within the limit: take them off the list"


def is_package(folder: Path) -> bool:
    """Return true for a folder with Python modules."""
    return any(folder.glob("*.py"))


def _lines(node: ast.stmt) -> int:
    assert node.end_lineno is not None
    return node.end_lineno - node.lineno + 1
