"""Limits of the code's size: functions, modules, packages, imports, helpers; form of names."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from itertools import chain

import terrarium
from tests.docs.reference import ROOT
from tests.docs.source import PACKAGES, Function, functions, trees

MOST_LINES_OF_A_FUNCTION = 60  # without its docstring
MOST_LINES_OF_A_MODULE = 600
MOST_MODULES_OF_A_PACKAGE = 14
MOST_IMPORTS = 16
MOST_PARAMETERS = 7
MOST_HELPERS = 0.08
"""Limit of private functions with one caller, as a share of all functions. Only ever to be
lowered."""

_QUESTION = re.compile(r"(?:What|Whether|Who|How|When|Somebody|Nobody)\b")
_PARTICIPLE = re.compile(
    r"_*(?:[^\W_]+ed|said|heard|kept|told|shown|known|given|gone|made|found|sent)_*"
)
_VERBS = re.compile(r"_*(?:embed|feed|seed|need|speed|exceed|proceed|embedd?ed)")
_IGNORED_FOLDERS = {"acceptance", "data", "docs", "kit", "promises"}


def test_no_function_is_too_long_or_has_too_many_parameters() -> None:
    found = [
        (f"{path}:{node.lineno} {name}", node)
        for path, tree in trees().items()
        for name, node in functions(tree)
    ]
    assert len(found) > 1000
    assert_within({name: length(node) for name, node in found}, MOST_LINES_OF_A_FUNCTION)
    assert_within({name: parameters(node) for name, node in found}, MOST_PARAMETERS)


def test_no_module_is_too_long_and_no_package_has_too_many() -> None:
    paths = [ROOT / name for name in trees()]
    lengths = {str(path): len(path.read_text("utf-8").splitlines()) for path in paths}
    assert_within(lengths, MOST_LINES_OF_A_MODULE)
    packages = Counter(str(path.parent) for path in paths if path.name != "__init__.py")
    assert_within(packages, MOST_MODULES_OF_A_PACKAGE)


def test_no_module_imports_more_of_ours_than_one_can_follow() -> None:
    counts = {name: len(own_imports(tree)) for name, tree in trees().items()}
    assert_within(counts, MOST_IMPORTS)


def test_few_functions_are_helpers_with_one_caller() -> None:
    total, helpers = 0, list[str]()
    for path, tree in trees().items():
        uses = Counter(
            node.id if isinstance(node, ast.Name) else node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Name | ast.Attribute)
        )
        for name, node in functions(tree):
            total += 1
            if re.match("_[^_]", node.name) and uses[node.name] == 1:
                helpers.append(f"{path} {name}")
    assert len(helpers) / total <= MOST_HELPERS, helpers


def test_modules_and_packages_import_one_another_in_no_circle() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    contracts = tools["importlinter"]["contracts"]
    (contract,) = (each for each in contracts if each["type"] == "acyclic_siblings")
    assert set(contract["ancestors"]) == set(PACKAGES)
    assert "ignore_imports" not in contract


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    found = [
        f"{path}: {text.splitlines()[0]}"
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | Function)
        if (text := ast.get_docstring(node) or "") and _QUESTION.match(text)
    ]
    assert found == []


def test_no_public_class_name_stands_twice() -> None:
    names = Counter(
        node.name
        for tree in trees().values()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert len(names) > 100
    assert [name for name, count in names.items() if count > 1] == []


def test_functions_are_named_by_verbs_not_by_bare_participles() -> None:
    names = [
        node.name
        for _, node in chain.from_iterable(map(functions, trees().values()))
        if not any("property" in ast.unparse(each) for each in node.decorator_list)
    ]
    bare = [name for name in names if _PARTICIPLE.fullmatch(name) and not _VERBS.fullmatch(name)]
    assert len(bare) < 0.01 * len(names), sorted(bare)


def test_the_front_door_has_what_it_names() -> None:
    assert list(terrarium.__all__) == sorted(terrarium.__all__)
    for name in terrarium.__all__:
        assert getattr(terrarium, name).__name__ == name
    assert dir(terrarium) == sorted(terrarium.__all__)


def test_tests_are_arranged_as_the_packages_are() -> None:
    paths = [path.relative_to(ROOT / "tests") for path in ROOT.glob("tests/*/**/test_*.py")]
    strange = {path.parent for path in paths if path.parts[0] not in _IGNORED_FOLDERS}
    assert len(strange) > 20
    assert [str(each) for each in strange if not any((ROOT / each).glob("*.py"))] == []


def length(function: Function) -> int:
    """Return the number of lines of a function without its docstring."""
    docstring = function.body[:1] if ast.get_docstring(function) else []
    assert function.end_lineno is not None
    lines = function.end_lineno - function.lineno + 1
    return lines - sum((each.end_lineno or 0) - each.lineno + 1 for each in docstring)


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
