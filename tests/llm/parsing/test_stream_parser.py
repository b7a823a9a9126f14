"""What a model with native tool calls writes reaches people as it is; so does code of others."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.messages.message import Message
from llm.parsing.stream_parser import StreamParser, StructuredOutput

SCHEMAS = [{"type": "function", "function": {"name": "remember", "parameters": {}}}]
PROMPT: list[Message] = [
    {
        "role": "user",
        "content": "<irc_logs>\n[2026-11-23 18:49:07] <ada> ok: decision: hagen, &lt;notes> too\n"
        "[2026-11-23 18:50:11] * bob nods\n</irc_logs>\n\nada asks: ?",
    }
]
LINE = "A line looks like this:\n[2026-03-01 12:00:01] <frog> hello pond\nand so on."
XML = '<?xml version="1.0"?>\n<plants><notes>water it</notes><facts/></plants>'
OBJECT = '{"response": "text for people", "status": "closed"}'
CALL = '```json\n{"name": "remember", "arguments": {"value": "tea"}}\n```'
THOUGHT = "Write `<think>2+2 is 4</think>` for that; <think>so</think> it is."
ANSWERS = [LINE, XML, OBJECT, CALL, THOUGHT, "R&amp;D is 3 &lt; 4", '{"name": "remember"}', "  a\n"]


def parsed(text: str, *, repairs: bool = False, wants_status: bool = False) -> StreamParser:
    """The parser after a text that came in single characters."""
    parser = StreamParser(
        SCHEMAS, PROMPT, repairs=repairs, wants_status=wants_status, decode_entities=repairs
    )
    shown = "".join([*map(parser.feed, text), parser.finish()])
    assert shown == parser.shown
    return parser


@pytest.mark.parametrize("answer", ANSWERS)
def test_nothing_good_is_destroyed(answer: str) -> None:
    parser = parsed(answer)
    assert parser.shown == answer
    assert (parser.calls, parser.thought, parser.filters) == ((), "", ())
    assert parser.output == StructuredOutput("")


def test_text_is_passed_on_piece_by_piece() -> None:
    parser = StreamParser(SCHEMAS, PROMPT)
    for piece in ("Use", " <", "notes", ">\n", "[12:", "00] <ada> `", '{"', "```json\n", "{"):
        assert parser.feed(piece) == piece


def test_thoughts_that_an_answer_begins_with_are_told_apart() -> None:
    parser = parsed("\n<think>two and two</think>\n\nFour. <think> is a tag.")
    assert (parser.shown, parser.thought) == ("Four. <think> is a tag.", "two and two")
    assert parser.filters == ("thoughts: 11 characters",)


def test_where_the_engine_has_told_thoughts_apart_nothing_is_a_thought() -> None:
    parser = StreamParser()
    text = "<think> is how a thought begins."
    shown = [parser.feed(each, is_separated=True) for each in text]
    assert "".join([*shown, parser.finish()]) == text


@pytest.mark.parametrize(
    ("text", "output"),
    [
        (OBJECT, StructuredOutput("text for people", "closed")),
        (f"```json\n{OBJECT}\n```", StructuredOutput("text for people", "closed")),
        ('{"response": ""}', StructuredOutput("", silent=True)),
        ('{"response": "It is cut he', StructuredOutput("It is cut he")),
        ('{"response": "a", "status": "closed", "x": 1}', None),
        ('{"response": "a"}', None),
        ('{"name": "remember", "arguments": {}}', None),
        (f"{OBJECT} is what I would send.", None),
        ("Well.", None),
    ],
)
def test_only_the_status_object_that_was_asked_for_is_unpacked(
    text: str, output: StructuredOutput | None
) -> None:
    parser = parsed(text, wants_status=True)
    assert parser.shown == (text if output is None else output.text)
    if output:
        assert (parser.output.status, parser.output.silent) == (output.status, output.silent)


@pytest.mark.parametrize(
    "text",
    [
        f"```\n{LINE}\n```",
        f"So:\n```xml\n{XML}\n```\nThat is all.",
        "Write `<notes>` or `[2026-03-01 12:00:01] <frog>` there.",
        f"Like this:\n{CALL}",
        f"{CALL}\nis an example.",
        f"```json\n{OBJECT}\n```\nis an example.",
        "`<think>2+2 is 4</think>`",
        "```\n<think>\n&amp;\n</think>\n```\n",
        "The decision and the answer:\n[18:49] <ada> ok: decision: hagen, <notes> too\nIt is so.",
        "As said:\n> [2026-11-23 18:49] <ada> ok: decision:\n[18:50:11] * bob nods",
    ],
)
def test_code_and_quotes_of_the_log_pass_all_repairs(text: str) -> None:
    parser = parsed(text, repairs=True)
    assert parser.shown == text
    assert (parser.calls, parser.filters) == ((), ())


@pytest.mark.parametrize(
    ("text", "shown", "filters"),
    [
        ("It is so.\n[18:48] <ada> ok: decision: hagen", "It is so.\n", "prompt echo"),
        ("It is so.\n[18:49] <ada> never mind", "It is so.\n", "prompt echo"),
        ("It is so.\n`x` <notes>\nada", "It is so.\n`x` ", "prompt echo"),
        ("R&amp;D `&amp;`", "R&D `&amp;`", "HTML entities: 4 characters"),
        ("Yes.<think>hm</think>", "Yes.", "thoughts: 2 characters"),
        (OBJECT, "text for people", "status object: 36 characters"),
        ("Yes. <<TOOL:remember:tea>>", "Yes. ", "calls: 21 characters"),
    ],
)
def test_what_is_repaired_is_named(text: str, shown: str, filters: str) -> None:
    parser = parsed(text, repairs=True)
    assert parser.shown == shown
    assert parser.filters[0].startswith(filters)


def test_a_fence_with_a_call_is_one_only_as_the_whole_answer() -> None:
    assert [call.name for call in parsed(CALL, repairs=True).calls] == ["remember"]


PARTS = st.sampled_from(
    [
        *("`", "``", "```", "\n```\n", "~~~\n", "\n", " ", "x", "<notes>", "<", "&lt;", "&amp;"),
        *("[18:49] <ada> ok: decision: hagen", "\n[18:48] <ada> ok", "<think>", "</think>", "[1"),
    ]
)


@given(st.lists(PARTS, max_size=12).map("".join), st.data())
def test_any_cut_of_an_answer_gives_the_same(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    for repairs in (True, False):
        whole = parsed(text, repairs=repairs)
        parser = StreamParser(SCHEMAS, PROMPT, repairs=repairs, decode_entities=repairs)
        for begin, end in itertools.pairwise([0, *cuts, len(text)]):
            parser.feed(text[begin:end])
        parser.finish()
        assert (parser.shown, parser.thought) == (whole.shown, whole.thought)
        assert parser.filters == whole.filters
