"""What belongs to prompts alone never stands in an answer; nothing good in it is destroyed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.client.response import AnswerFilter, PromptEchoFilter, SentenceLimit
from llm.messages.message import Message
from tests.kit.pieces import CUTS, pieces_of
from tests.kit.tables import rows

QUOTED = "[2026-03-01 12:00:01] <bob> the pump starts at six"
PROMPT: list[Message] = [
    {
        "role": "user",
        "content": f"<irc_logs>\n{QUOTED}\n"
        "[2026-11-23 18:49:07] <ada> ok: decision: hagen, ‹notes> too\n"
        "[2026-11-23 18:50:11] * bob nods\n</irc_logs>\n\nada asks: ?",
    }
]
LINE = "A line looks like this:\n[2026-03-01 12:00:01] <frog> hello pond\nand so on."
XML = '<?xml version="1.0"?>\n<plants><notes>water it</notes><facts/></plants>'
OBJECT = '{"response": "text for people", "status": "closed"}'
CALL = '```json\n{"name": "remember", "arguments": {"value": "tea"}}\n```'
THOUGHT = "Write `<think>2+2 is 4</think>` for that; <think>so</think> it is."
ANSWERS = [LINE, XML, OBJECT, CALL, THOUGHT, "R&amp;D is 3 &lt; 4", '{"name": "remember"}', "  a\n"]


def filtered(
    pieces: list[str], *, may_be_silent: bool = False, strips: bool = False
) -> AnswerFilter:
    """The filter after a text that came in pieces."""
    answer = AnswerFilter(PROMPT, may_be_silent=may_be_silent, filters_output=strips)
    shown = "".join([*map(answer.feed, pieces), answer.finish()])
    assert shown == answer.shown
    return answer


@pytest.mark.parametrize("text", ANSWERS)
def test_nothing_good_is_destroyed(text: str) -> None:
    answer = filtered(list(text))
    assert answer.shown == text
    assert (answer.filters, answer.silent) == ((), False)


def test_text_is_passed_on_piece_by_piece() -> None:
    answer = AnswerFilter(PROMPT)
    for piece in ("Use", " <", "notes", ">\n", "[12:", "00] <ada> `", '{"', "```json\n", "{"):
        assert answer.feed(piece) == piece


RESPONSES = [
    (OBJECT, "text for people", False),
    (f"```json\n{OBJECT}\n```", "text for people", False),
    (f"```\n {OBJECT}\n```", "text for people", False),
    (' {"status": "idle", "response": "Bye."}\n', "Bye.", False),
    ('{"response": "a\nb", "status": 1}', "a\nb", False),
    ('{"response": "a"}', "a", False),
    ('{"response": ""}', "", True),
    ('{"response": " ", "status": "idle"}', "", True),
    ('{"response": "It is cut he', "It is cut he", False),
    ('{"response": "a" "status": "idle"}', "a", False),
    ('{"response": "It is so.", "stat', "It is so.", False),
]


@pytest.mark.parametrize(("text", "shown", "silent"), RESPONSES)
def test_the_response_of_a_model_that_may_be_silent_is_unpacked(
    text: str, shown: str, silent: bool
) -> None:
    for pieces in ([text], list(text)):
        answer = filtered(pieces, may_be_silent=True)
        assert (answer.shown, answer.silent) == (shown, silent)
        assert [each.split(":")[0] for each in answer.filters] == ["object"]


@pytest.mark.parametrize(
    "text",
    [
        '{"response": "a", "status": "closed", "x": 1}',
        '{"response": {"a": 1}}',
        '{"response" is the key',
        '{"resp',
        '{"response": ' + "[" * 100_000,
        '{"name": "remember", "arguments": {}}',
        f"{OBJECT} is what I would send.",
        "{}",
        "```",
        "",
        "Well.",
    ],
)
def test_any_other_text_or_object_stays(text: str) -> None:
    for pieces in ([text], [text[at : at + 3] for at in range(0, len(text), 3)]):
        answer = filtered(pieces, may_be_silent=True)
        assert (answer.shown, answer.silent) == (text, False)


def test_an_object_is_held_back_and_text_is_not() -> None:
    answer = AnswerFilter(may_be_silent=True)
    assert answer.feed('{"respon') == ""
    assert answer.feed('se": "Hello') == ""
    assert answer.finish() == "Hello"
    answer = AnswerFilter(may_be_silent=True)
    assert answer.feed("{") == ""
    assert answer.feed(' "a"') == '{ "a"'
    assert answer.feed(" x") == " x"
    assert answer.finish() == ""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (CALL, ""),
        ('{"name": "sky", "parameters": {}}', ""),
        ('{"name": "Ada", "age": 36}',) * 2,
        (f"{CALL}\nis an example.",) * 2,
        ('{"name": "sky", "arguments": {}} is how',) * 2,
        (OBJECT, OBJECT),
    ],
)
def test_an_answer_that_is_nothing_but_a_call_is_nothing(text: str, shown: str) -> None:
    for pieces in ([text], list(text)):
        assert filtered(pieces, strips=True).shown == shown


@pytest.mark.parametrize(
    "text",
    [
        f"```\n{LINE}\n```",
        f"So:\n```xml\n{XML}\n```\nThat is all.",
        "Write `<notes>` or `[2026-03-01 12:00:01] <frog>` there.",
        f"Like this:\n{CALL}",
        "`<think>2+2 is 4</think>`",
        "```\n<notes>\n&amp;\n</notes>\n```\n",
        "The decision and the answer:\n[18:49] <ada> ok: decision: hagen, <notes> too\nIt is so.",
        "As said:\n> [2026-11-23 18:49] <ada> ok: decision:\n[18:50:11] * bob nods",
        f"bob said so:\n{QUOTED}",
        QUOTED,
        "a < b, and 2 << 3\nif x<y: pass",
        "Use <b>bold</b> &lt;p&gt; and <summary>x</summary>.",
        "[1] a list item\n[12:30] is a time",
    ],
)
def test_code_and_quotes_of_the_log_are_no_echo(text: str) -> None:
    for pieces in ([text], list(text)):
        answer = filtered(pieces, strips=True)
        assert (answer.shown, answer.filters, answer.has_ended) == (text, (), False)


@pytest.mark.parametrize(("text", "shown"), rows("llm/client/echoes.txt"))
def test_an_echo_of_the_prompt_is_removed(text: str, shown: str) -> None:
    text, shown = text.replace("\\n", "\n"), shown.replace("\\n", "\n")
    for pieces in ([text], list(text)):
        answer = filtered(pieces, strips=True)
        assert answer.shown.strip() == shown
        assert answer.filters[0].startswith("prompt echo: ")


def test_a_tag_or_a_forged_line_ends_the_answer_and_a_quoted_line_does_not() -> None:
    assert filtered(["Paris. <irc_logs>"], strips=True).has_ended
    assert filtered(["Yes.\n[2019-07-31 14:56:18] <Tom> hi"], strips=True).has_ended
    assert not filtered([f"Yes.\n{QUOTED}"], strips=True).has_ended


def test_prose_goes_on_at_once() -> None:
    echo = PromptEchoFilter()
    assert echo.feed("The capital") == "The capital"
    assert echo.feed(" is <") == " is "
    assert echo.feed("b>") == "<b>"
    assert echo.feed("\n[20") == "\n"
    assert echo.feed("", final=True) == "[20"


PARTS = st.sampled_from(
    [
        *("`", "``", "```", "\n```\n", "~~~\n", "\n", " ", "x", "<notes>", "<", "&lt;", "&amp;"),
        *("[18:49] <ada> ok: decision: hagen", "\n[18:48] <ada> ok", "[1", "</irc_", "logs>"),
        *('{"response": "', '", "status": "idle"}', '{"name": "x", "arguments": {', "}"),
    ]
)


@given(st.lists(PARTS, max_size=12).map("".join), CUTS, st.booleans(), st.booleans())
def test_any_cut_of_an_answer_gives_the_same(
    text: str, cuts: list[int], may_be_silent: bool, strips: bool
) -> None:
    whole = filtered([text], may_be_silent=may_be_silent, strips=strips)
    answer = filtered(pieces_of(text, cuts), may_be_silent=may_be_silent, strips=strips)
    assert (answer.shown, answer.filters, answer.has_ended, answer.silent) == (
        *(whole.shown, whole.filters, whole.has_ended, whole.silent),
    )


@pytest.mark.parametrize("row", rows("llm/client/sentences.txt"), ids=" | ".join)
def test_it_ends_after_so_many_sentences(row: Sequence[str]) -> None:
    text, one, two = (cell.replace("\\n", "\n") for cell in row)
    for most, wanted in ((1, one), (2, two)):
        for pieces in ([text], list(text)):
            limit = SentenceLimit(most)
            shown = "".join([*map(limit.feed, pieces), limit.feed("", final=True)])
            assert shown.strip() == wanted
