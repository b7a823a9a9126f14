"""The answer of a turn, as a tendril gets it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from llm.agent.outcome import Deferral, Outcome
from llm.messages.message import Message, Status
from terrarium.usage import TokenUsage

Action = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The answer to a turn request. `ok` is False when the text is an apology and nothing was kept;
    an empty text means that there is nothing to say: the question has joined another or was
    stopped, or the model wants to stay silent. `usage` are the tokens, `iterations` and `calls`
    how often the model and tools were called. `messages` is what memory keeps of it beside the
    question, by `remember`; `status` how it is with the conversation, `deferral` when to look at it
    again (see `llm.agent.outcome`), `on_delivered` what is to be done when the person has it."""

    text: str
    ok: bool = True
    usage: TokenUsage = field(default_factory=TokenUsage)
    messages: tuple[Message, ...] = field(default=(), compare=False)
    status: Status | None = None
    deferral: Deferral | None = None
    remember: Action | None = field(default=None, compare=False)
    on_delivered: Action | None = field(default=None, compare=False)
    iterations: int = 0
    calls: int = 0

    @classmethod
    def from_outcome(cls, outcome: Outcome, remember: Action, on_delivered: Action) -> TurnResult:
        """Make the answer of a turn that ended in `outcome`."""
        return cls(
            outcome.text,
            usage=outcome.usage,
            iterations=outcome.iterations,
            calls=outcome.calls,
            messages=outcome.messages,
            status=outcome.status,
            deferral=outcome.deferral,
            remember=remember,
            on_delivered=on_delivered,
        )


NO_REPLY = TurnResult("", ok=False)
"""The result for a question that has joined another or was stopped."""
