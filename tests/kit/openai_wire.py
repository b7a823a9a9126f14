"""Parts of the responses of the OpenAI API."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def call_delta(index: int, call: dict[str, Any]) -> dict[str, Any]:
    """Return the delta with a fragment of tool call number `index`."""
    return {"tool_calls": [{"index": index, **call}]}


def chat_choice(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    """Return the choice of a chat completion chunk."""
    return {"index": 0, "delta": delta, "finish_reason": finish}


def text_choice(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    """Return the choice of a text completion chunk, with log probabilities of its one token."""
    text = delta.get("content") or ""
    tops = {text: -0.5, "else": -1.5}
    logprobs = {"tokens": [text], "token_logprobs": [-0.5], "top_logprobs": [tops]}
    choice = {"index": 0, "text": text, "finish_reason": finish}
    return {**choice, "logprobs": logprobs} if text else choice


def event(data: Mapping[str, Any]) -> str:
    """Return a server-sent event with JSON data."""
    return f"data: {json.dumps(data)}\n\n"


def error_object(message: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """Return an OpenAI error object."""
    return {"error": {"message": message, "type": "script_error", "param": param, "code": code}}


def embeddings(vectors: Iterable[Sequence[float]], model: str, tokens: int) -> dict[str, Any]:
    """Return the response with a list of embeddings."""
    data = [
        {"object": "embedding", "index": index, "embedding": list(each)}
        for index, each in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": model, "usage": usage}


def words(value: Any) -> int:
    """Count the words of a text, message or content part, or of a list of them.

    A token id counts as one word.
    """
    if isinstance(value, str):
        return len(value.split())
    if isinstance(value, int):
        return 1  # a token id
    if isinstance(value, Mapping):
        return words(value.get("content") or value.get("text") or "")
    return sum(words(item) for item in value or [])
