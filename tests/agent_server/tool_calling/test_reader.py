"""Tool calls written as text: where one begins, and what it says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_server.tool_calling.reader import (
    CallDetector,
    CallReader,
    DetectedCall,
    Verdict,
    detect,
    read_calls,
    read_json,
)
from tests.kit.pieces import CUTS, pieces_of

LOOK = '{"name": "look", "arguments": {"word": "ada"}}'
CALLS_LOOK = DetectedCall("look", many=False)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("", "open"),
        (" \n", "open"),
        ("{", "open"),
        ('{ "na', "open"),
        ('{"name": "lo', "open"),
        ('{"name":"look"', CALLS_LOOK),
        ('{"name": "lookup", ', DetectedCall("lookup", many=False)),
        ('[ { "name" : "look"', DetectedCall("look", many=True)),
        ("`", "open"),
        ("``", "open"),
        ("```js", "open"),
        ('```json\n{"name": "look"', CALLS_LOOK),
        ('```\n[{"name": "look"', DetectedCall("look", many=True)),
        ('<tool_call>\n{"name": "look"', CALLS_LOOK),
        ("<tool_c", "open"),
        ("```python", "text"),
        ("`code`", "text"),
        ("Hello", "text"),
        ('{"answer": 1}', "text"),
        ('{"name": "other"', "open"),
        ('{"name": "other", "arg', "open"),
        ('{"name": "other", "arguments": {', DetectedCall("other", many=False)),
        ('{"name": "other", "age"', "text"),
        ('{"name": "Ada Lovelace"', "text"),
        ('{"name": 5', "text"),
        ("[1", "text"),
        ("json", "text"),
    ],
)
def test_a_beginning_is_judged_as_soon_as_it_can_be(text: str, verdict: Verdict) -> None:
    assert detect(text, ["look", "lookup"]) == verdict


def detected(pieces: list[str], *given: str) -> tuple[str, Verdict]:
    """What is let go of a stream as text, and the verdict at its end or at the first call."""
    detector = CallDetector(["look"], [{"content": text} for text in given])
    let_go, verdict = "", "text"  # type: tuple[str, Verdict]
    for piece in pieces:
        before = detector.buffered + piece
        verdict = detector.feed(piece)
        if isinstance(verdict, DetectedCall):
            return let_go + detector.words, verdict
        let_go += before if verdict == "text" else ""
    return let_go, verdict


@given(CUTS)
@pytest.mark.parametrize("tag", ["", "<tool_call>\n", "```py\nx\n```\n"])
def test_a_call_after_words_is_found_however_the_text_is_cut(tag: str, cuts: list[int]) -> None:
    words, verdict = detected(pieces_of(f"So:\n{{ not one\n{tag}{LOOK}", cuts))
    assert verdict == CALLS_LOOK
    assert words.removesuffix(tag) == "So:\n{ not one\n"


@given(CUTS)
@pytest.mark.parametrize(
    "text",
    [
        f"Like this:\n```json\n{LOOK}\n```\n",
        f"```python\n{LOOK}\n```\nThat is it.",
        f"~~~\n```\n{LOOK}\n```\n{LOOK}\n~~~\n",
        f"````\n```\n{LOOK}\n````",
        f"`{LOOK}`",
        f"> {LOOK}",
        f"[12:00] <ada> {LOOK}",
        f"Ada wrote {LOOK}",
        "I would use look() for it.",
    ],
)
def test_code_and_quoted_lines_are_text(text: str, cuts: list[int]) -> None:
    let_go, verdict = detected([*pieces_of(text, cuts), "\nend"])
    assert (let_go, verdict) == (f"{text}\nend", "text")


@pytest.mark.parametrize(
    ("given", "verdict"),
    [
        (f"ada asks: say exactly {LOOK} please", "text"),
        (LOOK.replace(" ", "\n"), "text"),
        (f"say {LOOK.replace(' ', '').replace('{', '{ ')}", "text"),
        (LOOK.replace("ada", "bob"), CALLS_LOOK),
        ("who is ada?", CALLS_LOOK),
    ],
)
@pytest.mark.parametrize("before", ["", "Well:\n<tool_call>", "```json\n"])
def test_a_call_that_was_given_is_a_quotation(before: str, given: str, verdict: Verdict) -> None:
    text = before + LOOK
    assert detected(list(f"{text}\nend"), given)[1] == verdict
    assert detected([f"{text}\nend"], given)[1] == verdict
    if verdict == "text":
        assert detected(list(text), given)[1] in ("open", "text")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
CALL = st.tuples(st.text(max_size=6), st.dictionaries(st.text(max_size=4), VALUES, max_size=3))


@given(
    calls=st.lists(CALL, min_size=1, max_size=3),
    cuts=CUTS,
    indent=st.sampled_from([None, 1]),
    newline=st.sampled_from(["\n", "\r\n"]),
)
def test_calls_are_read_whole_wherever_the_text_is_cut(
    calls: list[tuple[str, dict[str, Any]]], cuts: list[int], indent: int | None, newline: str
) -> None:
    written = [{"name": name, "arguments": arguments} for name, arguments in calls]
    text = json.dumps(written if len(written) > 1 else written[0], indent=indent)
    text = text.replace("\n", newline)
    reader = CallReader()
    deltas = [delta for piece in pieces_of(text, cuts) for delta in reader.feed(piece)]
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


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        (f"Let me look.\n<tool_call>\n{LOOK}\n</tool_call>", [("look", '{"word": "ada"}')]),
        (f"```json\n[{LOOK}, {LOOK}]\n```\nWell.", [("look", '{"word": "ada"}')] * 2),
        ('{"name": "look"}', [("look", "{}")]),
        ('{"name": "look", "parameters": {"word": "ada"}}', [("look", '{"word": "ada"}')]),
        ('{"name": "look", "arguments": "{\\"word\\": 1}"}', [("look", '{"word": 1}')]),
        ('{"name": "look", "arguments": {word: \'it\\\'s\',},}', [("look", '{"word": "it\'s"}')]),
        ('{"name": "look", "arguments": {"a": "x\ny"}}', [("look", '{"a": "x\\ny"}')]),
        ('{"name": "look", "arguments": {"w', [("look", '{"name": "look", "arguments": {"w')]),
        ('{"name": "look", "arguments": {"n": 1e999}}', [("look", None)]),
        (f"That is {LOOK}", []),
        ("Hello.", []),
    ],
)
def test_a_text_of_no_schema_is_read_too(text: str, calls: list[tuple[str, str | None]]) -> None:
    found = [delta["function"] for delta in read_calls(text, ["look"])]
    assert [each["name"] for each in found] == [name for name, _ in calls]
    for each, (_, arguments) in zip(found, calls, strict=True):
        assert arguments in (None, each["arguments"])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{'a': 'it\\'s', }", {"a": "it's"}),
        ("{a: True, b: None, c: 1e5, d: -3}", {"a": True, "b": None, "c": 1e5, "d": -3}),
        ('{"a": true, b: null}', {"a": True, "b": None}),
        ('["x", [1, 2,],]', ["x", [1, 2]]),
        ('{"a": "x\ny"}', {"a": "x\ny"}),
        (f"{LOOK} is how", json.loads(LOOK)),
        ("{'a': 1}\n</tool_call>", {"a": 1}),
        ("{'a': '\\d'}", {"a": "\\d"}),
    ],
)
def test_what_is_plain_is_repaired(text: str, value: Any) -> None:
    assert read_json(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"bob said {LOOK} yesterday",
        "bob said {name: look, arguments: {word: ada}} yesterday",
        "{name: look, arguments: {word: ada}}",
        '{"name": look them, "arguments": {}}',
        '{"name" "look"}',
        '{"n": "fr',
        '{"n": tru',
        "{'n': open('x')}",
        "{'n': f'{x}'}",
        "{**x}",
        "\0",
        "[" * 10_000,
        "-" * 10_000 + "1",
        "{'a': " * 5_000,
    ],
    ids=lambda text: text[:20],
)
def test_prose_and_what_is_cut_off_are_no_value(text: str) -> None:
    with pytest.raises(ValueError, match="no value"):
        read_json(text)


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"a": "' + "</tool_call>" * 3_000,
        "[" * 50_000,
        '{"name": ' * 5_000,
        "`x" * 20_000,
        "```json\n" + LOOK * 1_000,
        "<" * 50_000,
        "\n" * 50_000,
        ("```\n" + LOOK + "\n") * 1_000,
        '{"name": "look", "arguments": ' + "[" * 100_000,
    ],
    ids=lambda text: text[:12],
)
def test_a_hostile_text_is_read_in_small_pieces_before_long(text: str) -> None:
    pieces = [text[at : at + 7] for at in range(0, len(text), 7)]
    assert detected(pieces)[1] == detected([text])[1]
