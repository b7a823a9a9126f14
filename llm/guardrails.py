"""Rules that keep a run from going round in circles, asked before a tool is executed."""

from __future__ import annotations

import json
from collections import Counter

from llm.message import ToolCall

_SAME = 3  # the proposal of an identical call that is stopped


class Guardrails:
    """What one run has proposed so far."""

    def __init__(self, max_calls: int) -> None:
        self._left = max_calls
        self._proposed: Counter[tuple[str, str]] = Counter()

    @property
    def exhausted(self) -> bool:
        """Whether the run has used up its tool calls."""
        return self._left <= 0

    def objection(self, call: ToolCall) -> str | None:
        """Why a call must not run, in words for the model; None lets it run."""
        key = (call.name, _canonical(call.arguments))
        self._proposed[key] += 1
        if self._proposed[key] >= _SAME:
            return "error: not run: the same call was made before; use its result"
        if self.exhausted:
            return "error: not run: no tool calls are left; answer with what you have"
        self._left -= 1
        return None


def _canonical(arguments: str) -> str:
    """The arguments as one spelling of the same JSON."""
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments
