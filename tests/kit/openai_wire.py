"""The small parts of the OpenAI API's answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def call_delta(index: int, call: dict[str, Any]) -> dict[str, Any]:
    """A piece of the tool call with this number."""
    return {"tool_calls": [{"index": index, **call}]}


def chat_choice(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    """A choice of a chat's chunk."""
    return {"index": 0, "delta": delta, "finish_reason": finish}


def text_choice(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    """The choice of a bare prompt, with the log probabilities of its one token."""
    text = delta.get("content") or ""
    tops = {text: -0.5, "else": -1.5}
    logprobs = {"tokens": [text], "token_logprobs": [-0.5], "top_logprobs": [tops]}
    choice = {"index": 0, "text": text, "finish_reason": finish}
    return {**choice, "logprobs": logprobs} if text else choice


def event(data: dict[str, Any]) -> str:
    """One server-sent event."""
    return f"data: {json.dumps(data)}\n\n"


def error_object(message: str) -> dict[str, Any]:
    """An error object."""
    return {"error": {"message": message, "type": "script_error", "param": None, "code": None}}


def words(value: Any) -> int:
    """The words in a text, or in all texts of a list of messages or of content parts."""
    if isinstance(value, str):
        return len(value.split())
    if isinstance(value, int):
        return 1  # a token's number
    if isinstance(value, Mapping):
        return words(value.get("content") or value.get("text") or "")
    return sum(words(item) for item in value or [])
