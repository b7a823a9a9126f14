"""The prompt of a conversation: the latest lines of the channel, and the conversation's own turns.

The layout is append-only, so that the engine's prefix cache stays valid
(docs/decisions/0001-append-only-prompts.md): the system message; then log lines and turns in order
of arrival; then the newest lines and the question. The start of the prompt is stored with the
conversation, and moves rarely and far.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from llm.client.client import TokenCountResult
from llm.messages.errors import ContextTooLong
from llm.messages.message import (
    EARLIER,
    Message,
    PromptSection,
    Question,
    escape_tags,
    render_block,
    render_line,
    render_sections,
    within,
)
from llm.prompt.log_window import EventSlice, LogWindow, WindowContents
from storage.chat_log.event import Event
from storage.memory.conversations import Conversations, PromptWindow, Turn

_DROPPED_MARK = "[left out: too long]"
_CHARACTERS_PER_TOKEN = 3  # per token, at least, in most texts
# The divisors of the window that give the most characters of the sections of a kind.
_STABLE_SHARE, _QUESTION_SHARE = 3, 6
_MAX_MESSAGES = 30  # of earlier turns; beyond, the oldest two thirds are dropped at once

Counter = Callable[[Sequence[Message]], Awaitable[TokenCountResult]]
"""Counts the tokens of a prompt, and returns them with the model's context window."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """Where the turns of a conversation are stored: in `store` under `name`, with its `person` and
    `room`."""

    store: Conversations
    name: str
    room: str = ""
    person: str = ""

    async def remember(
        self, anchor: int, now: datetime, messages: Sequence[Message], related: Sequence[int] = ()
    ) -> None:
        """Store a finished turn: the question, asked by the log event `anchor`, and the answer.

        `related` are the ids of the older lines that the turn was shown.
        """
        turn = Turn(anchor, now, tuple(messages), related=tuple(related))
        await self.store.add(self.name, turn, self.room or self.name, self.person)


@dataclass(frozen=True, slots=True)
class PromptInput:
    """A question, and the input of its prompt for a model of any size.

    `system` is the text at the beginning of the prompt. `found` are log lines that answer the
    question, however old.
    """

    conversation: Conversation
    system: str
    question: Question
    log_window: LogWindow | None = None
    found: Sequence[Event] = ()


class PromptContext:
    """The prompt for one question of a conversation.

    `stable` sections are the same for all questions of a room, and follow the `system` text;
    `question_sections` belong to this question alone. `budget` is the number of tokens of lines and
    turns that this model uses well; None: as many as its window holds.
    """

    def __init__(
        self,
        given: PromptInput,
        *,
        stable: Sequence[PromptSection] = (),
        question_sections: Sequence[PromptSection] = (),
        budget: int | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._conversation = given.conversation
        self._system = given.system
        self._stable = list(stable)
        self._question_sections = list(question_sections)
        self._found = [event.id for event in given.found]
        self._budget = budget
        self._now = now
        self._question = given.question
        self._log_window = given.log_window
        self._known = PromptWindow()
        self._next_turn = 0  # the id at which the turns start once all current ones are dropped
        self._turn_start = 0
        self._turns: list[Turn] = []
        self._shown = EventSlice(0, [])
        self._related: dict[int, list[Event]] = {}  # older lines by turn; the question's under 0

    async def load(self) -> None:
        """Read the turns and the log lines that belong to the prompt."""
        conversation = self._conversation
        self._known, turns = await conversation.store.recall(conversation.name)
        self._next_turn = turns[-1].id + 1 if turns else self._known.turn_start
        cut = sum(len(turn.messages) for turn in turns) > _MAX_MESSAGES
        self._turns = _newest(turns, _MAX_MESSAGES // 3) if cut else turns
        self._turn_start = self._first_turn()
        if log_window := self._log_window:
            related = [*self._found, *await log_window.find_related(self._question.text)]
            await self._load_lines(log_window, related, cut=cut)

    async def _load_lines(
        self, log_window: LogWindow, related: Sequence[int], *, cut: bool
    ) -> None:
        """Read the newest lines, and older ones: those that earlier turns were shown, those
        `related` to the question, and for a first question the asker's last words.

        If turns were `cut`, the lines start afresh too, so that the start of the prompt moves once
        rather than twice.
        """
        as_turns = _anchors(self._turns)
        before = {event for turn in self._turns for event in turn.related}
        start = 0 if cut else self._known.log_start
        lines = await log_window.lines(start, as_turns, before.union(related), own=not self._turns)
        self._shown = lines.newest.without(as_turns)
        self._select_related(lines, related)

    def _select_related(self, lines: WindowContents, related: Sequence[int]) -> None:
        """Pick from `lines` the older ones that are shown nowhere else in the prompt."""
        found = {event.id: event for event in lines.named}
        as_turns = _anchors(self._turns)
        shown = as_turns | {event.id for event in self._shown.events}
        # A turn keeps the older lines that it was shown: its part of the prompt must not change.
        for turn in self._turns:
            self._related[turn.id] = [found[event] for event in turn.related if event in found]
            shown.update(turn.related)
        fresh = {event: found[event] for event in related if event in found}
        fresh |= {event.id: event for event in lines.own}
        self._related[0] = [
            fresh[event]
            for event in sorted(fresh)
            if event not in shown and fresh[event].reply_to not in as_turns
        ]

    async def fit(self, steps: Sequence[Message], count: Counter, reserve: int) -> list[Message]:
        """Return the messages, including the `steps` of the run, and leave `reserve` tokens free.

        Sections are cut to their share of the window. If lines and turns exceed the budget, or the
        whole exceeds the window, the past is cut to half of the limit. If that is not enough, the
        sections beside the question are dropped, then tool results from the oldest on, then the
        stable sections. Raises ContextTooLong if the rest is still too long.
        """
        kept = list(steps)
        counted = await count(self._messages(kept))
        if self._cut_sections(counted.window * _CHARACTERS_PER_TOKEN):
            counted = await count(self._messages(kept))
        room = counted.window - reserve
        await self._fit_past(counted, room, kept, count)
        messages = self._messages(kept)
        counted = await count(messages)
        while counted.tokens > room and (
            _leave_out_last(self._question_sections)
            or _leave_out_result(kept)
            or _leave_out_last(self._stable)
        ):
            messages = self._messages(kept)
            counted = await count(messages)
        if counted.tokens > room:
            raise ContextTooLong(f"{counted.tokens} tokens, room for {room}")
        return messages

    async def _fit_past(
        self, counted: TokenCountResult, room: int, steps: Sequence[Message], count: Counter
    ) -> None:
        """Cut lines and turns to half of what is allowed, if they exceed that."""
        # To half at once: each cut moves the start of the prompt, which costs the prefix cache. It
        # is repeated only because the sizes in characters are estimates.
        while self._has_past():
            characters = self._past_characters()
            over_budget = (
                self._budget is not None and characters > self._budget * _CHARACTERS_PER_TOKEN
            )
            if counted.tokens <= room and not over_budget:
                return
            share = 1 - room / 2 / counted.tokens if counted.tokens > room else 0.0
            whole = sum(map(_length, self._messages(steps)))
            excess = share * whole
            if over_budget and self._budget is not None:
                excess = max(excess, characters - self._budget * _CHARACTERS_PER_TOKEN / 2)
            await self._leave_out(excess)
            counted = await count(self._messages(steps))

    async def remember(self, messages: Sequence[Message]) -> None:
        """Store the question, the messages that answer it, and where the prompt begins."""
        live = self._live_window()
        anchor = await live.question_event_id() if live else 0
        related = [event.id for event in self._related.get(0, ())]
        conversation = self._conversation
        await conversation.remember(
            anchor, self._now(), (self._question.message(), *messages), related
        )
        log_start = self._shown.start if live else self._known.log_start
        window = PromptWindow(log_start, self._turn_start)
        if window != self._known:
            await conversation.store.move_window(conversation.name, window)

    def _live_window(self) -> LogWindow | None:
        """Return the log window if it continues from one question to the next, which a view `since`
        a time does not."""
        return self._log_window if self._log_window and self._log_window.since is None else None

    def _first_turn(self) -> int:
        return self._turns[0].id if self._turns else self._next_turn

    def _has_past(self) -> bool:
        return bool(self._turns or self._shown.events or self._related.get(0))

    def _past_characters(self) -> int:
        """Return the approximate size of all lines and turns in the prompt, in characters."""
        related = sum(
            len(render_line(event)) for events in self._related.values() for event in events
        )
        return related + sum(map(_size, self._shown.events)) + sum(map(_size, self._turns))

    def _messages(self, steps: Sequence[Message]) -> list[Message]:
        system = "\n\n".join(filter(None, (self._system, render_sections(self._stable))))
        messages: list[Message] = [{"role": "system", "content": system}]
        lines: list[Event] = []
        for item in _in_order(self._shown.events, self._turns):
            if isinstance(item, Event):
                lines.append(item)
            else:
                question = render_question(item.messages[0], lines, self._related.get(item.id, ()))
                messages += [question, *map(_render_step, item.messages[1:])]
                lines = []
        question = render_question(
            self._question.message(),
            lines,
            self._related.get(0, ()),
            render_sections(self._question_sections),
        )
        return [*messages, question, *map(_render_step, steps)]

    def _cut_sections(self, window: int) -> bool:
        """Cut the sections to their share of a window of so many characters; return whether that
        changed any."""
        stable = within(self._stable, window // _STABLE_SHARE)
        question_sections = within(self._question_sections, window // _QUESTION_SHARE)
        cut = (stable, question_sections) != (self._stable, self._question_sections)
        self._stable, self._question_sections = stable, question_sections
        return cut

    async def _leave_out(self, characters: float) -> None:
        """Drop the oldest part of the past, of at least so many characters."""
        # First the older lines of the question: they come last, after the cached prefix.
        characters -= sum(len(render_line(event)) for event in self._related.pop(0, ()))
        past = _in_order(self._shown.events, self._turns)
        while past and characters > 0:
            characters -= _size(past.pop(0))
        turns = [item for item in past if isinstance(item, Turn)]
        if len(turns) < len(self._turns):
            self._turns = turns
            self._turn_start = self._first_turn()
            self._related = {turn.id: self._related.get(turn.id, []) for turn in turns}
        events = [item for item in past if isinstance(item, Event)]
        live = self._live_window()
        if live is None:
            self._shown = EventSlice(self._shown.start, events)
        else:
            start = events[0].id if events else live.anchor
            # Questions and answers that are shown as turns no longer are log lines now.
            self._shown = (await live.newest(start, ())).without(_anchors(turns))


def render_question(
    question: Message,
    events: Sequence[Event],
    related: Sequence[Event] = (),
    sections: str = "",
) -> Message:
    """Return a question as it is sent: the lines just before it, the older lines and the
    rendered `sections` that belong to it, then the asker and the text."""
    text = escape_tags(f"{question['name']} asks: {question['content']}")
    more = f"{sections}\n\n" if sections else ""
    return {
        "role": "user",
        "content": render_block(events) + render_block(related, EARLIER) + more + text,
    }


def _render_step(step: Message) -> Message:
    """Return a step as it is sent; one by a person is a question that joined the turn."""
    return render_question(step, ()) if "name" in step else step


def _newest(turns: list[Turn], most: int) -> list[Turn]:
    """Return the newest turns with at most `most` messages in total: whole turns, and always the
    last one."""
    kept = turns[-1:]
    for turn in reversed(turns[:-1]):
        if sum(len(each.messages) for each in [turn, *kept]) > most:
            break
        kept.insert(0, turn)
    return kept


def _anchors(turns: Sequence[Turn]) -> set[int]:
    """Return the ids of the log events that are shown as turns: the questions, including those that
    joined."""
    joined_ones = {message.get("anchor", 0) for turn in turns for message in turn.messages}
    return joined_ones | {turn.question_event_id for turn in turns}


def _in_order(events: Sequence[Event], turns: Sequence[Turn]) -> list[Event | Turn]:
    """Merge log lines and turns in order of arrival."""
    past: list[Event | Turn] = []
    rest = list(events)
    for turn in turns:
        before = [event for event in rest if event.id < turn.question_event_id]
        rest = rest[len(before) :]
        past += [*before, turn]
    return past + rest


def _size(item: Event | Turn) -> int:
    """Return the approximate size of an item of the past in the prompt, in characters."""
    if isinstance(item, Event):
        return len(render_line(item))
    return sum(map(_length, item.messages))


def _length(message: Message) -> int:
    """Return the approximate size of a message in the prompt, in characters."""
    return len(message["content"] or "") + len(str(message.get("tool_calls", "")))


def _leave_out_last(sections: list[PromptSection]) -> bool:
    """Drop the last section; return False if there is none."""
    return bool(sections) and bool(sections.pop())


def _leave_out_result(steps: list[Message]) -> bool:
    """Replace the oldest tool result that is still whole; return False if there is none."""
    for index, step in enumerate(steps):
        if step["role"] == "tool" and step["content"] != _DROPPED_MARK:
            steps[index] = step | {"content": _DROPPED_MARK}
            return True
    return False
