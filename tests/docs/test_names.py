"""Naming rules, and the size of packages."""

from __future__ import annotations

import ast
import re
from collections import Counter

import terrarium
from tests.docs.reference import ROOT
from tests.docs.source import PACKAGES, Function, modules, trees

MOST_MODULES = 14
MOST_PARTICIPLES = 0.01
_PARTICIPLE = re.compile(r"_*(?:\w+ed|said|heard|kept|told|shown|known|given|gone|made|found|sent)")
_VERBS = re.compile(r"_*(?:embed|feed|seed|need|speed|exceed|proceed|embedd?ed)")


def test_no_public_class_name_stands_twice() -> None:
    names = Counter(
        node.name
        for tree in trees(*PACKAGES).values()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert len(names) > 100
    assert [name for name, count in names.items() if count > 1] == []


def test_functions_are_named_by_verbs_not_by_bare_participles() -> None:
    functions = [
        node
        for tree in trees(*PACKAGES).values()
        for node in ast.walk(tree)
        if isinstance(node, Function) and not _is_property(node)
    ]
    bare = [
        node.name
        for node in functions
        if _PARTICIPLE.fullmatch(node.name)
        and "_" not in node.name.strip("_")
        and not _VERBS.fullmatch(node.name)
    ]
    assert len(bare) < MOST_PARTICIPLES * len(functions), sorted(bare)


def test_a_room_has_no_more_modules_than_one_can_look_over() -> None:
    rooms = Counter(path.parent for path in modules(*PACKAGES) if path.name != "__init__.py")
    crowded = {str(room.relative_to(ROOT)): n for room, n in rooms.items() if n > MOST_MODULES}
    assert crowded == {}


def test_the_front_door_has_what_it_names() -> None:
    assert list(terrarium.__all__) == sorted(terrarium.__all__)
    for name in terrarium.__all__:
        assert getattr(terrarium, name).__name__ == name
    assert dir(terrarium) == sorted(terrarium.__all__)


def _is_property(node: Function) -> bool:
    decorators = {ast.unparse(each).rpartition(".")[2] for each in node.decorator_list}
    return bool(decorators & {"property", "cached_property", "setter"})
