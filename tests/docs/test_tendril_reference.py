"""docs/tendrils-reference.md has every public name of a tendril, and valid examples."""

from __future__ import annotations

import ast
import re
import textwrap

import pytest

import terrarium
from harnesses.core.attention import AttentionMixin
from harnesses.core.chat import ChatTendril
from harnesses.core.tendril.base import Tendril
from tests.docs.tendril_reference import PAGE, SERVICES, documented, public_names

TEXT = PAGE.read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", TEXT, re.M | re.S)
SHOWN = (
    *("turn", "request", "requester", "config", "conversations", "clear", "say", "handlers"),
    *("listen", "rights", "peers", "request_from_peer"),
    *("edit", "typing", "image", "note_join", "note_leave"),
)


def test_the_lists_are_those_of_the_code() -> None:
    assert documented(TEXT) == TEXT, "run: .venv/bin/python -m tests.docs.tendril_reference"


def test_no_public_name_of_a_tendril_is_missing() -> None:
    names = public_names(Tendril)
    assert len(names) > 30
    listed = set(re.findall(r"^- `(\w+)", TEXT, re.M))
    names += [*public_names(AttentionMixin), *public_names(ChatTendril)]
    assert [name for name in (*names, *terrarium.__all__) if name not in listed] == []


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda text: text.splitlines()[0][:40])
def test_each_example_is_python_and_uses_names_that_there_are(example: str) -> None:
    tree = ast.parse(f"async def example(self):\n{textwrap.indent(example, '    ')}")
    attributes = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
    own = {"medium", "settings", "boil", "watch_temperature"}  # of the tendril in the example
    assert attributes - own <= {
        *public_names(Tendril),
        *public_names(AttentionMixin),
        *public_names(ChatTendril),
    }


def test_each_service_has_an_example() -> None:
    shown = "".join(EXAMPLES)
    assert [name for name in SERVICES if f"{name}." not in shown] == []
    assert [name for name in SHOWN if not re.search(rf"\b{name}\b", shown)] == []
