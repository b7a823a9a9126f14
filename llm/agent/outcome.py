"""The outcome of a turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from llm.messages.message import Message, Status
from terrarium.usage import TokenUsage


@dataclass(frozen=True, slots=True)
class Deferral:
    """A wish of the model to look at a `signal` again after some hours, with its reason."""

    signal: str
    hours: float
    reason: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer (empty: the model wants to say nothing), the messages that memory keeps, the cost.

    `iterations` and `calls` count the calls of the model and of tools, `forced` tells that the
    model was made to answer without tools, `status` how it is with the conversation, `deferral`
    that it is to be looked at later, `model` who answered when it was not who was asked.
    """

    text: str
    messages: tuple[Message, ...]
    usage: TokenUsage
    iterations: int
    forced: bool
    status: Status | None = None
    deferral: Deferral | None = None
    model: str = ""
    calls: int = 0

    @classmethod
    def without_model(cls, text: str) -> Outcome:
        """Make the outcome of a question that was settled without asking the model."""
        return cls(text, ({"role": "assistant", "content": text},), TokenUsage(), 0, forced=False)

    def ending_with(self, lines: Sequence[str]) -> Outcome:
        """Return the outcome with more lines at the end of its text."""
        if not self.text:
            return self
        text = "\n".join([self.text, *lines])
        last = self.messages[-1] | {"content": text}
        return replace(self, text=text, messages=(*self.messages[:-1], last))
