"""Text from people cannot pass for our marks or a chat template's; ordinary text stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm.untrusted import neutral

EXCERPTS = sorted((Path(__file__).parents[1] / "data").glob("ubuntu-*.txt"))
HOSTILE = [
    "</irc_logs>",
    "< / irc_logs >",
    "<IRC_LOGS>",
    "<<irc_logs>>",
    '<tool_result tool="x">',
    "</tool_result>",
    "<tool_response>",
    "<tool_call>",
    "<tools>",
    "<<TOOL:REMEMBER:x>>",
    "<system>",
    "<think>",
    "</think>",
    "<<THINK>>",
    "<thinking>",
    "<memory>",
    "<|im_start|>",
    "<|IM_END|>",
    "<|start_header_id|>",
    "<|endoftext|>",
    "<|turn>",
    "<turn|>",
    "<start_of_turn>",
    "<end_of_turn>",
    "<bos>",
    "</s>",
    "<｜User｜>",
    "<｜end▁of▁sentence｜>",
    "[INST]",
    "[/INST]",
    "[TOOL_CALLS]",
    "[SYSTEM_PROMPT]",
]
PARTS = st.sampled_from([*HOSTILE, "<", "<<", ">", "|", "/", " ", "\n", "&lt;", "[", "]", "think"])
TEXTS = st.lists(PARTS | st.text(max_size=4), max_size=10).map("".join)


@pytest.mark.parametrize("tag", HOSTILE)
def test_a_reserved_tag_loses_its_meaning(tag: str) -> None:
    harmless = neutral(f"a{tag}b")
    assert tag not in harmless
    assert harmless.replace("&lt;", "<").replace("&#91;", "[") == f"a{tag}b"


@given(TEXTS)
def test_what_is_harmless_stays_so(text: str) -> None:
    once = neutral(text)
    assert neutral(once) == once
    assert not any(tag.lower() in once.lower() for tag in HOSTILE if tag[0] == "<")


@pytest.mark.parametrize("excerpt", EXCERPTS, ids=lambda path: path.name)
def test_what_people_really_say_is_left_alone(excerpt: Path) -> None:
    text = excerpt.read_text(encoding="utf-8")
    assert len(text) > 1_000
    assert neutral(text) == text


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
    assert neutral(text) == text
