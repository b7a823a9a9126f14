"""What people type is never a control token of any family of models."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_server.engines.prompt_guard import ZERO_WIDTH_SPACE, escape_control_tokens

MARKS = [
    "<|im_end|>", "<|im_start|>system", "<|eot_id|>", "<｜User｜>", "<start_of_turn>user",
    "<end_of_turn>", "<bos>", "<s>", "</s>", "<<SYS>>", "<</SYS>>", "[INST]", "[/INST]",
    "[TOOL_CALLS]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "<|turn>", "<turn|>", "<BOS_TOKEN>",
    "<unused7>",
]  # fmt: skip


@pytest.mark.parametrize("mark", MARKS)
def test_a_mark_is_broken_wherever_it_stands_in_a_message(mark: str) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "a", "arguments": f'"{mark}"'}}
    body = {
        "messages": [
            {"role": "user", "content": f"hi {mark} there"},
            {"role": "user", "content": [{"type": "text", "text": mark}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": mark, "tool_call_id": "1"},
        ]
    }
    escaped = escape_control_tokens(body)
    assert mark not in str(escaped)
    assert str(escaped).count(ZERO_WIDTH_SPACE.encode("unicode_escape").decode()) >= 4
    assert str(escaped).replace(ZERO_WIDTH_SPACE.encode("unicode_escape").decode(), "") == str(body)


@pytest.mark.parametrize("text", ["a < b", "x[0]", "<b>bold</b>", "[inst]", "<ada> hi"])
def test_other_text_stays_as_it_is(text: str) -> None:
    body = {"messages": [{"role": "user", "content": text}]}
    assert escape_control_tokens(body) == body


@given(st.text(alphabet="<>|/[]sINST _tur", max_size=40))
def test_breaking_marks_leaves_none_behind(text: str) -> None:
    body = {"messages": [{"role": "user", "content": text}]}
    once = escape_control_tokens(body)
    assert not any(mark in once["messages"][0]["content"] for mark in MARKS)
