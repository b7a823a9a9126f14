"""Front matter: YAML of keys with values and lists; anything else is an error that says where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from terrarium.config import ConfigError
from terrarium.front_matter import parse, split

GOOD = [
    ("", {}, ""),
    ("Just text.\n", {}, "Just text."),
    ("---\n---\nText", {}, "Text"),
    ("---\nname: pirate # arr\n---\n\nText\n", {"name": "pirate"}, "Text"),
    ('---\nname: "a: #b \\"c\\""\n---\n', {"name": 'a: #b "c"'}, ""),
    ("---\nname: 'it''s'\n---\nx", {"name": "it's"}, "x"),
    ("---\ntools: [a, 'b, c', d]\n---\nx", {"tools": ["a", "b, c", "d"]}, "x"),
    ("---\ntools: []\n---\nx", {"tools": []}, "x"),
    (
        "---\ntools:\n  - a\n  - b # why\n# c\nname: n\n---\nx",
        {"tools": ["a", "b"], "name": "n"},
        "x",
    ),
    ("---\nurl: http://h/#x\n---\nx\n---\ny", {"url": "http://h/#x"}, "x\n---\ny"),
    ("--- \r\nname: n\r\n---\r\nx\r\n", {"name": "n"}, "x"),
    ("---\nname: |\n  two\n  lines\n---\n", {"name": "two\nlines\n"}, ""),
    ("---\nname: yes\nshort: 1.0\n---\n", {"name": "yes", "short": "1.0"}, ""),
    ('---\nname:\nshort: ""\n---\n', {"name": [], "short": ""}, ""),
]
BAD = [
    ("---\nname: n\n", "no end"),
    ("---\nname\n---\n", 'line 2: write "key: value"'),
    ("---\nname: n\nname: m\n---\n", "line 3: name is there twice"),
    ("---\n- a\n---\n", "line 2"),
    ("---\nname: n\n- a\n---\n", "line 3"),
    ("---\nname: {a: b}\n---\n", "line 2"),
    ("---\nname: a: b\n---\n", "line 2: mapping values"),
    ("---\nname: !!python/object/apply:os.system [id]\n---\n", "line 2"),
    ("---\nname: !shell id\n---\n", "line 2: the tag !shell"),
    ("---\nname: *n\n---\n", "line 2"),
    ("---\nname: \x07\n---\n", "no YAML"),
    (f"---\nname: {'[' * 20_000}\n---\n", "nested"),
    ("---\na:\n  b: c\n---\n", "line 3"),
    ('---\nname: "a\n---\n', r"line \d: found unexpected end"),
    ("---\ntools: [a, b\n---\n", r"line \d"),
    ("---\ntools: [a] b\n---\n", r"line \d"),
]


class Keys(BaseModel):
    """Some keys."""

    name: str = ""
    temperature: float | None = None
    tools: tuple[str, ...] = ()


@pytest.mark.parametrize(("text", "keys", "body"), GOOD)
def test_keys_and_text_are_parted(text: str, keys: dict[str, Any], body: str) -> None:
    assert split(text) == (keys, body)


@pytest.mark.parametrize(("text", "why"), BAD)
def test_what_is_no_front_matter_says_where(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        split(text)


@given(st.text(alphabet="ab:-[]{},'\"#| \n\\", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        keys, body = split(f"---\n{text}")
    except ValueError:
        return
    assert all(isinstance(value, str | list) for value in keys.values())
    assert isinstance(body, str)


_PRINTABLE = st.characters(
    exclude_categories=("Cc", "Cs", "Zl", "Zp", "Cn"), exclude_characters="\ufeff"
)


@given(st.lists(st.text(_PRINTABLE, max_size=20), max_size=4))
def test_whatever_is_quoted_comes_back(items: list[str]) -> None:
    quoted = ["'" + item.replace("'", "''") + "'" for item in items]
    assert split(f"---\ntools: [{', '.join(quoted)}]\n---\n")[0] == {"tools": items}


def test_keys_get_the_types_that_they_need_and_what_is_wrong_is_named(tmp_path: Path) -> None:
    path = tmp_path / "pirate.md"
    path.write_text("\ufeff---\ntemperature: 0.7\ntools: [a]\n---\nArr.\n", encoding="utf-8")
    assert parse(Keys, path) == (Keys(temperature=0.7, tools=("a",)), "Arr.")
    for key, reason in (
        ("temprature: 1", r'pirate\.md: unknown key "temprature"; .* is "temperature"'),
        ("temperature: hot", r"pirate\.md: temperature: .*number"),
    ):
        path.write_text(f"---\n{key}\n---\nArr.")
        with pytest.raises(ConfigError, match=reason):
            parse(Keys, path)
    with pytest.raises(ConfigError, match=r"nowhere\.md cannot be read"):
        parse(Keys, tmp_path / "nowhere.md")
