"""The parts of a prompt, as a trace measures them."""

from __future__ import annotations

from llm.agent.trace import prompt_parts
from llm.messages.message import Image, Message, PromptSection

PNG = Image("image/png", b"\x89PNG")
FACTS = PromptSection("facts", "ada likes frogs\nbob likes newts", 100)
LINES = "<irc_logs>\n[2026-05-01 12:00:00] <ada> hi\n[2026-05-01 12:00:01] <bob> ho\n</irc_logs>"
CALL = {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"at": "pond"}'}}
PROMPT: list[Message] = [
    {"role": "system", "content": f"You are Terra.\nA bot.\n\n{FACTS}"},
    {"role": "user", "content": f"{LINES}\n\nada asks: who is here?"},
    {"role": "assistant", "content": "You and bob."},
    {"role": "user", "content": "<now>\nFriday\n</now>\n\nbob asks: and <irc_logs>?", "image": PNG},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "1", "content": "<tool_result>\na frog\n</tool_result>"},
]


def test_the_parts_of_a_prompt_are_named_in_the_order_in_which_the_model_reads_them() -> None:
    parts = prompt_parts(PROMPT, 2, [{"type": "function"}])
    assert [(part.name, part.lines) for part in parts] == [
        ("tools", 0),
        ("persona", 2),
        ("memory", 2),
        ("channel log", 2),
        ("earlier turns", 2),
        ("now", 1),
        ("question", 1),
        ("image", 0),
        ("tool calls and results", 4),
    ]
    assert parts[3].tokens == 21  # of three characters
    assert next(part.tokens for part in parts if part.name == "image") == PNG.tokens
