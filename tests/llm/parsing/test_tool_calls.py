"""Tool calls that a model writes as text: taken out of what people see, however they are cut."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llm.parsing.stream_parser import StreamParser
from llm.parsing.tool_call_formats import ToolCallFormats
from llm.parsing.tool_calls import ToolCallParser

KNOWN = {"search": ("query", "user"), "who": (), "remember": ("key", "value")}
SCHEMAS = [
    {
        "type": "function",
        "function": {"name": name, "parameters": {"properties": {key: {} for key in parameters}}},
    }
    for name, parameters in KNOWN.items()
]
PARTS = st.sampled_from(
    [
        *(
            "<<TOOL:who>>",
            "<<TOOL:search:",
            "<<tool:remember:",
            '{"key":"x >> y"}',
            ">>",
            "<<",
            ":",
        ),
        *("<tool_call>", "</tool_call>", "<tool_result>", "</tool_result>", "</tool_result"),
        *(
            '{"name": "who"}',
            '{"name": "search", "arguments": {',
            '"query": "a',
            '"',
            "}",
            "}}",
            "]",
        ),
        *('{"name": "sing"}', "[", '{"response": "', '", "status": "idle"}', "'name'", ",", "\\"),
        *(
            "who()",
            "search(",
            'query="a")',
            "search",
            "who",
            "(",
            ")",
            "{",
            " ",
            "  ",
            "\n",
            "\n\n",
        ),
        *(
            "`",
            "``",
            "```",
            "```json\n",
            "\n```",
            "```tool_code\n",
            "~~~",
            "> ",
            "[12:00] ",
            "<ada> ",
        ),
        *("<think>", "</think>", "<<THINK>>", "<", ">", "x", "word ", "I call ", "İK", "\r\n"),
    ]
)
TEXTS = st.lists(PARTS, max_size=14).map("".join)


def parted(pieces: list[str]) -> tuple[str, list[tuple[str, Any, bool]]]:
    """What is shown of the pieces, and the calls in them."""
    splitter = ToolCallParser(ToolCallFormats.from_schemas(SCHEMAS))
    shown = "".join([*map(splitter.feed, pieces), splitter.finish()])
    return shown, [(call.name, _read(call.arguments), call.truncated) for call in splitter.calls]


def _read(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def uttered(pieces: list[str]) -> tuple[str, str, list[str], str | None, bool]:
    utterance = StreamParser(SCHEMAS, repairs=True)
    shown = "".join([*map(utterance.feed, pieces), utterance.finish()])
    assert shown == utterance.shown
    calls = [f"{call.name} {call.arguments} {call.truncated}" for call in utterance.calls]
    return shown, utterance.thought, calls, utterance.output.status, utterance.output.silent


FROGS = ("search", {"query": "frogs"}, False)
WHO: tuple[str, Any, bool] = ("who", {}, False)


@pytest.mark.parametrize(
    ("text", "shown", "calls"),
    [
        ("<<TOOL:who>>", "", [WHO]),
        ("<<tool:WHO:>>", "", [WHO]),
        ("I look. <<TOOL:search:frogs>> So.", "I look.  So.", [FROGS]),
        ('<<TOOL:search:{"query":"frogs"}>>', "", [FROGS]),
        ('<<TOOL:search:query="frogs">>', "", [FROGS]),
        ('<<TOOL:search:"frogs" >>', "", [FROGS]),
        ("<<TOOL:who>> and <<TOOL:search:frogs>>", " and ", [WHO, FROGS]),
        ('<tool_call>{"name": "who"}</tool_call>', "", [WHO]),
        ('<tool_call>{"name":"search","parameters":{"query":"frogs"}}</tool_call>', "", [FROGS]),
        ('<tool_call>[{"name": "who"}, {"tool": "who"}]</tool_call>', "", [WHO, WHO]),
        ('<tool_call>search(query="frogs")</tool_call>', "", [FROGS]),
        ('<tool_result> search("frogs") </tool_result>', "", [FROGS]),
        ('Yes.\nsearch(query="frogs")\n', "Yes.\n\n", [FROGS]),
        ("who()\nsearch('frogs')", "\n", [WHO, FROGS]),
        ('{"name": "search", "arguments": {"query": "frogs"}}', "", [FROGS]),
        ('{"name": "search", "arguments": "{\\"query\\": \\"frogs\\"}"}', "", [FROGS]),
        ('{"type": "function", "function": {"name": "who"}}', "", [WHO]),
        ('{"tool_calls": [{"id": "1", "function": {"name": "who", "arguments": {}}}]}', "", [WHO]),
        ('```json\n{"name": "who", "arguments": {}}\n```\n', "", [WHO]),
        ("```tool_code\nsearch(query='frogs')\nwho()\n```", "", [FROGS, WHO]),
    ],
)
def test_a_call_is_read_in_each_of_its_forms(text: str, shown: str, calls: list[Any]) -> None:
    assert parted([text]) == (shown, calls)


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("{'name': 'search', 'arguments': {'query': 'it\\'s', 'user': None,},}", "it's"),
        ('{"name": "search", "arguments": {query: "a \\"b\\" c", "user": null}}', 'a "b" c'),
        ('{"name": "search", "arguments": {"query": "a\nb", "user": None}}', "a\nb"),
    ],
)
def test_json_is_repaired(text: str, call: str) -> None:
    assert parted([text]) == ("", [("search", {"query": call, "user": None}, False)])


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "search", "arguments": {"query": "fro',
        '<tool_call>{"name": "search", "arguments": {"query": "fro',
        '<tool_call>{"name": "search", "arguments": {"query": "fro</tool_call>',
        '<<TOOL:search:{"query": "fro',
        '<<TOOL:search:{"query": "fro>>',
        "<<TOOL:search:fro",
        'search(query="fro',
        '```json\n{"name": "search", "arguments": {"query": "fro',
    ],
)
def test_a_call_that_is_cut_is_read_and_says_so(text: str) -> None:
    assert parted([text]) == ("", [("search", {"query": "fro"}, True)])


def test_a_parameter_may_hold_what_closes_the_tag() -> None:
    assert parted(['<<TOOL:REMEMBER:{"v":"x >> y"}>> ok']) == (
        " ok",
        [("remember", {"v": "x >> y"}, False)],
    )
    held = '<tool_call>{"name": "search", "arguments": {"query": "</tool_call>"}}</tool_call>.'
    assert parted([held]) == (".", [("search", {"query": "</tool_call>"}, False)])


@pytest.mark.parametrize(
    "text",
    [
        "Write `<<TOOL:who>>` for that.",
        "Write ``<<TOOL:who>> ` `` for that.",
        "```\n<<TOOL:who>>\n```",
        "~~~python\nwho()\n~~~",
        "```python\nwho()\n```",
        "```\nwho()\n```",
        '```json\n{"name": "who"}\n```\nThat is how a call looks.',
        'A call looks like this:\n```json\n{"name": "who"}\n```',
        "Like this:\n```tool_code\nwho()\n```\n",
        '```json\n{"name": "who"}\n```\n\n```json\n{"name": "who"}\n```\nTwo examples.',
        '```json\n{"name": "sing"}\n```',
        '```json\n{"name": "who", "age": 3}\n```',
        "> <<TOOL:who>>",
        "<ada> <<TOOL:who>>",
        "[2026-05-01 12:00:00] <ada> <<TOOL:who>>",
        'Ada wrote "<<TOOL:who>>" to me.',
        'Ada wrote “<tool_call>{"name": "who"}</tool_call>”.',
        "I would use who() or search() for it.",
        "who() is a function",
        '{"name": "who"} is how to call',
        '{"name": "sing", "arguments": {}}',
        '{"name": "who", "age": 3}',
        '{"response": "see <<TOOL:who>>"}',
        '<tool_result tool="who">\n["ada"]\n</tool_result>',
        "<tool_result>\nsomething\n</tool_result>",
        "1 << 2 >> 3 <tool> <<TOOL>> <tools",
        "cout << x; vector<vector<int>> y;",
    ],
)
def test_what_is_quoted_or_no_call_stays_as_it_is(text: str) -> None:
    assert parted([text]) == (text, [])


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("<tool_call>just words</tool_call>", ("", "just words", False)),
        ('<tool_call>{"name": "search", oops}</tool_call>', ("search", '{"name": "search", oops}')),
        ("<<TOOL:sing:la>>", ("sing", {"argument_1": "la"})),
        ('<<TOOL:search:{"query" oops}>>', ("search", '{"query" oops}')),
    ],
)
def test_a_tag_that_cannot_be_read_is_a_call_that_fails_and_is_not_shown(
    text: str, call: tuple[Any, ...]
) -> None:
    shown, [found] = parted([text])
    assert shown == ""
    assert found[:2] == call[:2]


def test_words_are_shown_at_once_and_what_may_be_a_call_is_not() -> None:
    splitter = ToolCallParser(ToolCallFormats.from_schemas(SCHEMAS))
    assert splitter.feed("Frogs are ") == "Frogs are "
    assert splitter.feed("green <<TO") == "green "
    assert splitter.feed("OL is a word.\nsea") == "<<TOOL is a word.\n"
    assert splitter.feed("ls swim") == "seals swim"
    assert splitter.feed('\n{"a": 1') == '\n{"a": 1'
    assert splitter.feed("\n```python\nwh") == "\n```python\nwh"


@settings(max_examples=300)
@given(TEXTS, st.data())
@example('{"name": "who"}\n```json\n{"name": "who"}\n``` \n', None)
@example("<<TOOL:search:<<TOOL:who>>>>", None)
@example('```json\n{"name": "who"}\n```<<TOOL:who>>\n\nx', None)
def test_any_cut_of_a_text_gives_the_same(text: str, data: st.DataObject | None) -> None:
    whole = uttered([text])
    assert uttered(list(text)) == whole
    if data:
        places = data.draw(st.lists(st.integers(0, len(text)), max_size=5).map(sorted))
        assert uttered([text[a:b] for a, b in itertools.pairwise([0, *places, len(text)])]) == whole


@given(TEXTS)
def test_no_tag_of_a_call_is_ever_shown_unquoted_and_no_thought_at_all(text: str) -> None:
    plain = text.replace("`", "").replace("~", "").replace('"', "").replace("'", "")
    shown, thought, *_ = uttered([f"a{plain}<think>SECRET{text.replace('</think>', '')}"])
    assert "SECRET" not in shown
    assert "SECRET" in thought
    for line in parted([plain])[0].split("\n"):
        quoted = line.lstrip().startswith((">", "[12:00]", "<ada>"))
        assert quoted or "<tool_call>" not in line
        assert quoted or "<<tool:who" not in line.lower()


@given(st.text(max_size=80))
def test_anything_at_all_is_parted_without_an_error(text: str) -> None:
    shown, calls = parted([text])
    assert calls or shown == text


@given(st.text(alphabet="ab <>(){}[]:,.'\n", max_size=60))
def test_text_without_a_call_passes_unchanged(text: str) -> None:
    assert parted(list(text)) == (text, [])


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"a": "' + "</tool_call>" * 3_000,
        '<<TOOL:search:{"a": "' + ">>" * 20_000,
        "<<TOOL:search:" + "<< >> " * 5_000,
        "[" * 50_000,
        '{"name": ' * 5_000,
        "`x" * 20_000,
        "search(" * 5_000,
        "```json\n" + '{"name": "who"}' * 3_000,
        "<" * 50_000,
    ],
    ids=lambda text: text[:12],
)
def test_a_hostile_text_is_read_in_small_pieces_before_long(text: str) -> None:
    pieces = [text[at : at + 7] for at in range(0, len(text), 7)]
    assert parted(pieces) == parted([text])
