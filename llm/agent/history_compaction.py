"""A long run as the model is shown it: its beginning, its end, and between them the counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from llm.messages.message import Message

_LONG = 10  # steps
_FIRST, _LAST = 2, 5  # steps that stay as they are


def compact_steps(steps: Sequence[Message]) -> list[Message]:
    """The messages of a run; over ten steps, each a reply with its results, the middle becomes
    counts by tool. What people added meanwhile stays."""
    starts = [at for at, message in enumerate(steps) if message["role"] == "assistant"]
    if len(starts) <= _LONG:
        return list(steps)
    begin, end = starts[_FIRST], starts[-_LAST]
    middle = steps[begin:end]
    said = [message for message in middle if message["role"] == "user"]
    note: Message = {"role": "user", "content": _counts(middle)}
    return [*steps[:begin], note, *said, *steps[end:]]


def _counts(middle: Iterable[Message]) -> str:
    """How often each tool has worked and failed."""
    tools: dict[str, str] = {}
    worked: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for message in middle:
        for call in message.get("tool_calls", ()):
            tools[call["id"]] = call["function"]["name"]
        if message["role"] == "tool":
            count = failed if message.get("failed") else worked
            count[tools[message["tool_call_id"]]] += 1
    lines = [
        f"{name}: {worked[name]} worked, {failed[name]} failed"
        for name in dict.fromkeys(tools.values())
    ]
    return "\n".join(["<steps>", "steps between, by tool:", *lines, "</steps>"])
