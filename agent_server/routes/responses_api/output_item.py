"""An item of a response under construction: a message, reasoning or a tool call."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

DELTA_EVENTS = {
    "message": "output_text",
    "reasoning": "reasoning_text",
    "function_call": "function_call_arguments",
}
"""The part of the event names between `response.` and `.delta` or `.done`, by kind of item."""


class OutputItem:
    """An item under construction; `call` is the index of its tool call, None for other kinds.

    `newest` has the log probabilities of the text that was added last.
    """

    def __init__(self, kind: str, call: int | None, item: dict[str, Any]) -> None:
        self.kind = kind
        self.call = call
        self.item = item
        self.text = ""
        self.logprobs: list[dict[str, Any]] = []
        self.newest: list[dict[str, Any]] = []

    def add(self, text: str, logprobs: list[dict[str, Any]]) -> None:
        """Append text and its log probabilities."""
        self.text += text
        self.newest = logprobs
        self.logprobs += logprobs

    def end(self, status: str) -> None:
        """Complete the item with the text that was appended."""
        self.item["status"] = status
        if self.kind == "function_call":
            self.item["arguments"] = self.text
        else:
            self.item["content"] = [self.part(self.text)]

    def part(self, text: str) -> dict[str, Any]:
        """Return the item's only content part, with `text`."""
        if self.kind == "reasoning":
            return {"type": "reasoning_text", "text": text}
        return {
            "type": "output_text", "text": text, "annotations": [],
            "logprobs": self.logprobs if text else [],
        }  # fmt: skip


def new_item(kind: str, call: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return an empty item with a new id; `call` is the first piece of a tool call."""
    common = {"type": kind, "status": "in_progress"}
    if kind == "reasoning":
        return {"id": f"rs_{uuid.uuid4().hex}", **common, "summary": [], "content": []}
    if kind == "message":
        return {"id": f"msg_{uuid.uuid4().hex}", **common, "role": "assistant", "content": []}
    call = call or {}
    name = (call.get("function") or {}).get("name") or ""
    begun = {"call_id": call.get("id") or f"call_{uuid.uuid4().hex}", "name": name, "arguments": ""}
    return {"id": f"fc_{uuid.uuid4().hex}", **common, **begun}


def logprob(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the log probability of a token, with only the keys that this API has."""
    kept = {
        "token": entry["token"],
        "bytes": entry.get("bytes") or [],
        "logprob": entry["logprob"],
    }
    if "top_logprobs" in entry:
        kept["top_logprobs"] = [logprob(top) for top in entry["top_logprobs"]]
    return kept
