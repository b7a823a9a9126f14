"""A question to a tendril, with everything that its turn needs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harnesses.core.tendril.turn_result import TurnResult
from llm.agent.limits import Profile
from llm.client.client import OnText, Priority
from llm.messages.user_message import Question
from llm.prompt.log_window import LogWindow
from llm.tools.toolbox import Rights

Deliver = Callable[[TurnResult], Coroutine[Any, Any, None]]
"""Brings an answer to the person who asked."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TurnRequest:
    """What `who` asks in `conversation`.

    `person` is whom memory takes the asker for, if not `who`; `room` is what the conversation
    shares with others, as those on a channel do. `log_window` is the log that belongs to it,
    `tools` own `@tool` methods beside the tendril's, `rights` tells what the person may have done
    by them. `values` fill the `$names` of the persona (`persona`, the name or text of another one,
    instead of the tendril's), `model` is asked instead of the configured one, `on_text` is given
    each piece of the answer. A question that `joins` becomes part of the one being answered, if it
    goes on from that; memory `keeps` it or not. `deliver` is given the answer before the next
    question has its turn. `profile` limits it; the trace of a `private` one names nobody; there may
    be a `review`; `run` names it for who asks again after a crash (`llm.agent.trace`).
    `wants_status`: the model is asked how the conversation stands, for follow-ups.
    """

    conversation: str
    who: str
    text: str
    person: str = ""
    room: str = ""
    log_window: LogWindow | None = None
    tools: Sequence[object] = ()
    rights: Rights = frozenset
    values: Mapping[str, str] = field(default_factory=dict)
    priority: Priority = "interactive"
    on_text: OnText | None = None
    persona: str | None = None
    model: str = ""
    joins: bool = False
    keeps: bool = True
    deliver: Deliver | None = None
    profile: Profile = "standard"
    private: bool = False
    review: bool = False
    run: str = ""
    wants_status: bool = False

    def __repr__(self) -> str:
        """Name the conversation, unless it is private, and never the words."""
        conversation = "private" if self.private else self.conversation
        return f"<TurnRequest {conversation} {self.profile}, {len(self.text)} characters>"

    @property
    def is_by_person(self) -> bool:
        """True when a person has asked, and waits for the answer."""
        return self.profile in ("standard", "command")

    def question(self) -> Question:
        """Return the question as the model is asked it."""
        return Question(
            self.who,
            self.text,
            self.log_window.pending_event if self.log_window and self.joins else None,
        )

    async def with_logged_question(self) -> TurnRequest:
        """Return the request once all that was said before the question is in the log."""
        if self.log_window is None:
            return self
        return replace(self, log_window=await self.log_window.settled())
