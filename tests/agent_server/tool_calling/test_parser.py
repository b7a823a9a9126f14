"""Tool calls read while they are written."""

from __future__ import annotations

import itertools
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agent_server.tool_calling.parser import CallReader

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
CALL = st.tuples(st.text(max_size=6), st.dictionaries(st.text(max_size=4), VALUES, max_size=3))


@given(
    calls=st.lists(CALL, min_size=1, max_size=3),
    cuts=st.lists(st.integers(min_value=0), max_size=6),
    indent=st.sampled_from([None, 1]),
    newline=st.sampled_from(["\n", "\r\n"]),
)
def test_calls_are_read_whole_wherever_the_text_is_cut(
    calls: list[tuple[str, dict[str, Any]]], cuts: list[int], indent: int | None, newline: str
) -> None:
    written = [{"name": name, "arguments": arguments} for name, arguments in calls]
    text = json.dumps(written if len(written) > 1 else written[0], indent=indent)
    text = text.replace("\n", newline)
    marks = sorted({cut % (len(text) + 1) for cut in cuts} | {0, len(text)})
    reader = CallReader()
    deltas = [d for a, b in itertools.pairwise(marks) for d in reader.feed(text[a:b])]
    begun = [delta for delta in deltas if "id" in delta]
    assert [delta["function"]["name"] for delta in begun] == [name for name, _ in calls]
    assert [delta["index"] for delta in begun] == list(range(len(calls)))
    for index, (_, arguments) in enumerate(calls):
        parts = [d["function"]["arguments"] for d in deltas if d["index"] == index]
        assert json.loads("".join(parts)) == arguments
    assert len({delta["id"] for delta in begun}) == len(calls)


def test_what_is_no_call_makes_no_delta() -> None:
    for text in ("", "hello", '{"name": "a"', '{"name": "a", "arguments": ', "[1, 2]"):
        assert CallReader().feed(text) == []
