"""Lenient JSON: repaired where the meaning is plain, and never made out of prose.

These are the properties for which no general repair library is used (docs/decisions/0009).
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.parsing.lenient_json import IncompleteJson, ParsedValue, ParseError, read_value
from llm.parsing.tool_call_formats import ToolCallFormats
from llm.parsing.tool_calls import ToolCallParser

CALL = '{"name": "kick", "arguments": {"nick": "bob"}}'


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{'a': 'it\\'s', }", {"a": "it's"}),
        ("{a: True, b: None, c: 1e5}", {"a": True, "b": None, "c": 1e5}),
        ('["x", [1, 2,],]', ["x", [1, 2]]),
    ],
)
def test_what_is_plain_is_repaired(text: str, value: Any) -> None:
    assert read_value(text) == ParsedValue(value, len(text))


@pytest.mark.parametrize(
    "text",
    [
        f"bob said {CALL} yesterday",
        "bob said {name: kick, arguments: {nick: bob}} yesterday",
        "{name: kick, arguments: {nick: bob}}",
        '{"name": kick them, "arguments": {}}',
        '{"name" "kick"}',
        '<b> "a" [1',
        '{"size": 1e999}',
    ],
)
def test_prose_is_no_value(text: str) -> None:
    with pytest.raises(ParseError):
        read_value(text)


@pytest.mark.parametrize("after", [" is how one would do it", CALL, ">> and more", "\n```"])
def test_a_value_ends_where_it_ends(after: str) -> None:
    assert read_value(CALL + after).end == len(CALL)


@given(st.integers(min_value=1, max_value=len(CALL) - 1))
def test_a_stream_is_told_that_more_must_come(length: int) -> None:
    with pytest.raises(IncompleteJson):
        read_value(CALL[:length], final=False)


@pytest.mark.parametrize("text", ['{"n": "fr', '{"n": [1, 2', '{"n": {"m": "x"'])
def test_a_value_that_was_cut_off_says_so(text: str) -> None:
    assert read_value(text).truncated


@pytest.mark.parametrize("text", ["tru", "12", "-", ""])
def test_a_word_or_number_at_the_end_may_go_on(text: str) -> None:
    with pytest.raises(IncompleteJson):
        read_value(text)


def test_no_value_is_nested_too_deeply() -> None:
    with pytest.raises(ParseError):
        read_value("[" * 10_000)


@pytest.mark.parametrize(
    "line",
    [
        "bob said {name: kick, arguments: {nick: ada}} yesterday",
        f"bob said {CALL} yesterday",
        f"{CALL} is how one would do it",
        "{name: kick, arguments: {nick: ada}}",
    ],
)
def test_prose_with_a_call_in_it_stays_prose(line: str) -> None:
    parser = ToolCallParser(ToolCallFormats({"kick": ("nick",)}))
    assert "".join(map(parser.feed, line)) + parser.finish() == line
    assert parser.calls == ()
