"""A short test of whether a model decides well by itself when to use a tool.

Ten questions, of which five need one of three tools and five need none. A model passes with eight
right: one that always calls, or never does, has five.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

from agent_server.engine_protocol import Chunk, Chunks

VERSION = 1
"""Of the questions: a judgement by others does not count."""

PASSES = 0.8
LONGEST = 48
"""Tokens of an answer, which need not be whole."""

Ask = Callable[[Mapping[str, Any]], Chunks]


def _tool(name: str, description: str, argument: str, meaning: str) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": {argument: {"type": "string", "description": meaning}},
        "required": [argument],
    }
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


TOOLS = (
    _tool("weather", "The weather of today in a city", "city", "name of the city"),
    _tool("search_log", "Find what people said in this chat before", "words", "words to look for"),
    _tool("calculate", "The exact value of an arithmetic expression", "expression", "as 2*(3+4)"),
)

CASES: tuple[tuple[str, str | None], ...] = (
    ("What is the weather in Oslo today?", "weather"),
    ("Good morning!", None),
    ("What did Anna say here about the printer last week?", "search_log"),
    ("What is the opposite of hot?", None),
    ("How much is 4817 times 3962?", "calculate"),
    ("Write a short rhyme about the sea.", None),
    ("Do I need an umbrella in Lima today?", "weather"),
    ("Thank you, that is all.", None),
    ("Who mentioned the new router in this chat?", "search_log"),
    ("What is the capital of Japan?", None),
)
"""A question, and the tool that it needs."""

SYSTEM = "You are a helpful assistant in a chat. Use a tool only if the question needs one."


async def share_right(ask: Ask) -> float:
    """Return the share of the questions for which a model chose rightly. Raises ApiError.

    A model that cannot pass any more is asked nothing further, and gets the share so far.
    """
    right = 0
    for asked, (question, wanted) in enumerate(CASES, 1):
        right += await _chosen_tool(ask, question) == wanted
        if right + len(CASES) - asked < PASSES * len(CASES):
            break
    return right / len(CASES)


async def _chosen_tool(ask: Ask, question: str) -> str | None:
    """The tool that the model calls, or None when it answers."""
    body = {
        "messages": [
            {"role": "system", "content": SYSTEM},
            {"role": "user", "content": question},
        ],
        "tools": list(TOOLS),
        "tool_choice": "auto",
        "temperature": 0,
        "max_tokens": LONGEST,
    }
    name, text = "", ""
    async with aclosing(ask(body)) as chunks:
        async for chunk in chunks:
            name += _call_name(chunk)
            text += _content(chunk)
    # Words that look like a call, of a tool that is none, are no answer either.
    return name or ("a call in words" if text.lstrip().startswith(("{", "[", "<tool")) else None)


def _call_name(chunk: Chunk) -> str:
    """What a chunk adds to the name of the first call."""
    found = ""
    for choice in chunk.get("choices") or ():
        for call in (choice.get("delta") or {}).get("tool_calls") or ():
            if not call.get("index"):
                found += (call.get("function") or {}).get("name") or ""
    return found


def _content(chunk: Chunk) -> str:
    choices = chunk.get("choices") or ()
    return "".join((choice.get("delta") or {}).get("content") or "" for choice in choices)
