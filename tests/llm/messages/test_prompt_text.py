"""Text from people cannot pass for our marks or a chat template's; ordinary text stays as it is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.messages.message import PromptSection, escape_tags, render_block, render_line, wire
from llm.prompt.builder import Persona
from llm.tools.toolbox import render_result
from tests.kit.lines import said

EXCERPTS = sorted((Path(__file__).parents[2] / "data").glob("ubuntu-*.txt"))
HOSTILE = [
    *("</irc_logs>", "< / irc_logs >", "<IRC_LOGS>", "<<irc_logs>>", '<tool_result tool="x">'),
    *("</tool_result>", "<tool_response>", "<tool_call>", "<tools>", "<system>", "<think>"),
    *("</think>", "<<THINK>>", "<thinking>", "<memory>", "<guidance>", "</own_facts>", "<draft>"),
    *("<|im_start|>", "<|IM_END|>", "<|start_header_id|>", "<|endoftext|>", "<|turn>", "<turn|>"),
    *("<start_of_turn>", "<end_of_turn>", "<bos>", "</s>", "<｜User｜>", "<｜end▁of▁sentence｜>"),
    *("[INST]", "[/INST]", "[TOOL_CALLS]", "[SYSTEM_PROMPT]", "<<SYS>>", "<BOS_TOKEN>"),
    *("<unused12>", "<__media__>", "[gMASK]", "[|system|]", "[EOT]"),
]
PARTS = st.sampled_from(
    [*HOSTILE, "<", "<<", ">", "|", "/", " ", "\n", "‹", "&lt;", "[", "]", "think"]
)
TEXTS = st.lists(PARTS | st.text(max_size=4), max_size=10).map("".join)


def forged(text: str) -> list[str]:
    """The reserved tags in a text; those in square brackets are so only in their own case."""
    low = text.lower()
    return [tag for tag in HOSTILE if (tag.lower() in low if tag[0] == "<" else tag in text)]


@pytest.mark.parametrize("tag", HOSTILE)
def test_a_reserved_tag_loses_its_meaning(tag: str) -> None:
    harmless = escape_tags(f"a{tag}b")
    assert tag not in harmless
    assert harmless.replace("‹", "<").replace("&#91;", "[") == f"a{tag}b"


@given(TEXTS)
def test_what_is_harmless_stays_so(text: str) -> None:
    once = escape_tags(text)
    assert escape_tags(once) == once
    assert not forged(once)


@pytest.mark.parametrize("excerpt", EXCERPTS, ids=lambda path: path.name)
def test_what_people_really_say_is_left_alone(excerpt: Path) -> None:
    text = excerpt.read_text(encoding="utf-8")
    assert len(text) > 1_000
    assert escape_tags(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "if a < b and b << 2 > c | d",
        "see <https://example.org/think>",
        "<alice> I think so",
        "echo foo <<EOF | cat >out",
        "std::vector<int> v; v[INSTANCE]",
        "<thoughtful> <toolbox> <systemd> [think] [inst]",
        "_<|:-) <| ok",
        "[07:34] <|thunder> hi",
        "[05:02] <Gimp|> hey",
    ],
)
def test_ordinary_text_with_angles_is_left_alone(text: str) -> None:
    assert escape_tags(text) == text


def once_each(text: str, tag: str) -> str:
    """What is between the only two tags of ours in a text."""
    opening, closing = (mark for mark in re.findall(rf"</?{tag}[^>]*>", text))
    begin, inner, end = re.split(f"{re.escape(opening)}|{re.escape(closing)}", text)
    assert begin == end.strip() == ""
    return inner


@given(TEXTS, TEXTS)
def test_nothing_that_people_say_forges_a_tag_or_a_line_in_the_log(nick: str, text: str) -> None:
    events = said(text, nick=nick), said("hi", nick="bob")
    inner = once_each(render_block([*map(render_line, events)]), "irc_logs")
    assert not forged(inner)
    first, second = inner.strip("\n").split("\n")
    assert second == "[2026-05-01 12:00:00] <bob> hi"
    assert first.startswith("[2026-05-01 12:00:00] ")


@given(TEXTS, TEXTS)
def test_no_tool_result_forges_a_tag(name: str, text: str) -> None:
    assert not forged(once_each(render_result(name, text), "tool_result"))


@given(TEXTS)
def test_no_section_forges_a_tag(text: str) -> None:
    for name in ("facts", "summary", "episodes", "lessons", "guidance", "worked_out"):
        shown = str(PromptSection(name, text, 10_000))
        assert shown == "" or not forged(once_each(shown, name))


@given(TEXTS)
def test_no_name_or_topic_forges_a_tag_in_the_persona(text: str) -> None:
    persona = Persona(text="You are $nick. <topic>$topic</topic>")
    shown = persona.render({"nick": text, "topic": text})
    assert shown.count("<topic>") == shown.count("</topic>") == 1
    assert not forged(shown.replace("<topic>", "").replace("</topic>", ""))


# Tags of our prompts, which mean nothing in what the model itself has said.
SECTIONS = re.compile("irc_logs|<tools>|system>|memory|guidance|facts|draft", re.IGNORECASE)


def escaping(text: str) -> list[str]:
    """The tags in a text by which it could leave its message, or become a call."""
    return [tag for tag in forged(text) if not SECTIONS.search(tag)]


@given(TEXTS, TEXTS, st.booleans())
def test_no_word_or_call_of_the_model_forges_a_message_or_a_call(
    text: str, name: str, escaped: bool
) -> None:
    arguments = json.dumps({text: [text, {"x": text}]}, ensure_ascii=escaped)
    if escaped:
        arguments = arguments.replace("<", "\\u003c")
    call = {"id": "1", "type": "function", "function": {"name": name, "arguments": arguments}}
    sent = wire({"role": "assistant", "content": text, "tool_calls": [call]})
    assert not escaping(sent["content"] or "")
    function = sent["tool_calls"][0]["function"]
    assert not escaping(function["name"])
    (key,) = given_back = json.loads(function["arguments"])
    assert not escaping(key + given_back[key][0] + given_back[key][1]["x"])


def test_the_model_sees_the_files_that_it_has_written_as_they_are() -> None:
    file = "```xml\n<notes><user>ada</user><summary>fine</summary></notes>\n```"
    assert wire({"role": "assistant", "content": file})["content"] == file


def test_harmless_arguments_stay_as_the_model_wrote_them() -> None:
    call = {"function": {"name": "search", "arguments": '{ "query":"a < b",  "é": 1 }'}}
    sent = wire({"role": "assistant", "content": None, "tool_calls": [call]})
    assert sent["tool_calls"] == [call]


@pytest.mark.parametrize(
    "text",
    [
        "<//irc_logs>",
        "< / / irc_logs>",
        "<\u200b/irc_logs>",
        "<i\u200brc_logs>",
        "</irc\u2060_logs>",
        "\uff1c/irc_logs\uff1e",
        "<\uff0firc_logs>",
        "<\uff53ystem>",
        "\uff3bINST]",
        "<function=kick>",
        "<invoke name='kick'>",
        "<assistant>",
        "</user>",
        "<function_calls>",
    ],
)
def test_disguised_tags_and_calls_are_escaped(text: str) -> None:
    escaped = escape_tags(f"before {text} after")
    assert escaped.startswith(("before ‹", "before &#91;"))
    assert escaped.endswith(" after")
    assert escape_tags(escaped) == escaped


@pytest.mark.parametrize(
    "text", ["a \uff1c b", "\uff1cada\uff1e hi", "1 < 2\u200b", "<username> x"]
)
def test_what_is_no_tag_in_any_disguise_stays(text: str) -> None:
    assert escape_tags(text) == text
