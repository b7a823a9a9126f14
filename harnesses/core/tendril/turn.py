"""A question to a tendril with everything that its turn needs, and the answer of that turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harnesses.core.services.peers import Origin
from llm.agent.outcome import Deferral, Outcome
from llm.agent.tool_executor import Profile, RunLimits
from llm.client.client import OnText, Priority
from llm.client.settings import AgentSettings
from llm.messages.image import Image
from llm.messages.message import Message, Question, Status
from llm.prompt.log_window import LogWindow
from llm.tools.toolbox import Rights
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


Deliver = Callable[[TurnResult], Coroutine[Any, Any, bool]]
"""Delivers an answer to the person who asked; returns whether they have it."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TurnRequest:
    """A question of `who` in `conversation`, with everything that its turn needs.

    - `person` is the name under which memory keeps the asker (default: `who`), `room` what the
      conversation shares with others, such as its channel (default: the conversation alone).
      `payer` is who has the budget of the asker, where a person is to be known better than by
      `person`: the server gets a pseudonym of it, and it is kept nowhere.
    - `log_window` is the part of the log that belongs to the question.
    - `tools` are objects with `@tool` methods, added to those of the tendril; `rights` returns
      what the person may have done by them.
    - `persona` (a name or a text) replaces the tendril's, `values` fill its `$names`, `model`
      replaces the configured one.
    - `on_text` gets each piece of the answer; `deliver` gets the answer before the next question
      has its turn. What the person does not have, memory does not keep.
    - A question that `joins` may become part of the one that is being answered, if it goes on from
      that. Unless memory `keeps` it, nothing of the turn is stored, and of a person's question
      no trace either.
    - `origin` is who is behind the question, for the tendrils that are asked on their behalf; None:
      no other is asked.
    - `profile` limits the run, `review` has its text reviewed. The trace of a `private` request
      names nobody. `run` is the key of the trace, for a run repeated after a crash
      (`llm.agent.trace`).
    - An `image` is shown to a model that can see, with the question, and kept nowhere; of any other
      model the answer says so.
    - With `wants_status` the model is asked for the state of the conversation, for follow-ups.
    """

    conversation: str
    who: str
    text: str
    person: str = ""
    room: str = ""
    payer: str = ""
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
    origin: Origin | None = None
    image: Image | None = None

    def __repr__(self) -> str:
        """Name the conversation, unless it is private or not kept, and never the words."""
        return f"<TurnRequest {self.label} {self.profile}, {len(self.text)} characters>"

    @property
    def label(self) -> str:
        """The conversation as the process log may name it: only the kind of one that is private,
        or of which nothing is kept."""
        if self.private:
            return "private"
        return "not kept" if self.is_unrecorded else self.conversation

    @property
    def is_unrecorded(self) -> bool:
        """True for a question of which nothing is to be stored, not even that it was asked."""
        return self.is_by_person and not self.keeps

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

    def limits(self, settings: AgentSettings) -> RunLimits:
        """Return the limits of the run: of another tendril's question, the budget that it has
        left."""
        limits = RunLimits.from_settings(settings, self.profile)
        budget = self.origin.budget if self.origin else None
        return limits.within(budget) if budget else limits

    def with_tools(self, *owners: object | None) -> TurnRequest:
        """Return the request with the tools of more owners; None has none."""
        return replace(self, tools=[*self.tools, *(each for each in owners if each is not None)])

    async def with_logged_question(self) -> TurnRequest:
        """Return the request once all that was said before the question is in the log."""
        if self.log_window is None:
            return self
        return replace(self, log_window=await self.log_window.settled())
