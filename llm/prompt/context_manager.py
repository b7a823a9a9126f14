"""The prompt of a conversation for a capable model, and that of a question to a small one.

The order of `PromptContext` is that of change, so that the engine's prefix cache stays valid
(docs/decisions/0001-append-only-prompts.md): the system message, the same for a whole channel; then
the window of the channel, which everybody who asks there shares and which grows at its end; then
what belongs to the asker and to this question: their earlier turns, memory, the time, the question.
"""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Literal, TypeVar

from llm.client.profile import Profile
from llm.client.token_usage import TokenCountResult
from llm.messages.errors import ContextTooLong, Unsure
from llm.messages.message import (
    CHARACTERS_PER_TOKEN,
    EARLIER,
    NO_ASKER,
    AttachedFile,
    Image,
    Message,
    PromptSection,
    Question,
    ShownText,
    escape_tags,
    render_block,
    render_line,
    stamp,
    within,
)
from llm.prompt.log_window import LogWindow, WindowLine
from llm.reading.reading import ABOUT_TALK, GOING_ON, Reading
from storage.chat_log.event import Event, EventType
from storage.db.database import from_micros
from storage.memory.conversations import Conversations, PromptWindow, Turn

_SECTIONS_SHARE = 6  # the divisor of the window that gives the most characters of the sections
_TURNS_SHARE = 8  # the divisor of the budget that gives the most characters of turns beside lines
_STEPS_SHOWN = 2  # of the asker's latest turns, also if the channel's window has their answers

_DROPPED = "[left out"

T = TypeVar("T")

Counter = Callable[[Sequence[Message]], Awaitable[TokenCountResult]]
"""Counts the tokens of a prompt, and returns them with the model's context window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptInput:
    """A question, and the input of its prompt for a model of any size.

    The turns of its `conversation`, of this `room` and `person`, are in `store`. `system` is the
    text at the beginning of the prompt. The `image` of the question is not stored. `found` are log
    lines that answer it, however old. If the question `replaces` a turn (an id), that and all after
    it are not shown, and are deleted once it is answered.
    """

    store: Conversations
    conversation: str
    room: str
    person: str
    system: str
    question: Question
    image: Image | None = None
    log_window: LogWindow | None = None
    found: Sequence[Event] = ()
    replaces: int = 0

    @property
    def live_window(self) -> LogWindow | None:
        """The log window if it continues from one question to the next; no view by time or from
        outside the log does."""
        window = self.log_window
        return window if window and window.since is None and window.scope is None else None

    def with_image(self, question: Message) -> Message:
        """Return the question as it is sent, with its image if it has one."""
        return question | {"image": self.image} if self.image else question

    async def remember(
        self, now: datetime, messages: Sequence[Message], related: Sequence[int] = ()
    ) -> None:
        """Store the question and the messages that answer it; `related` are the ids of the older
        lines that the turn was shown."""
        live = self.live_window
        anchor = await live.question_event_id() if live else 0
        turn = Turn(anchor, now, (self.question.message(), *messages), related=tuple(related))
        if self.replaces:
            await self.store.cut(self.conversation, self.replaces)
        await self.store.add(self.conversation, turn, self.room, self.person)


class PromptContext:
    """The prompt for one question of a conversation.

    `sections` are memory and what else stands beside the question, the most important last. Lines
    and turns may take a `share` of the model's window, and at most `most_tokens`, if not None.
    """

    is_lost = False  # it shows the conversation that a question may follow up on

    def __init__(
        self,
        given: PromptInput,
        *,
        sections: Sequence[PromptSection] = (),
        share: float = 0.5,
        most_tokens: int | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._given = given
        self._sections = list(sections)
        self._found = list(given.found)
        self._share, self._most_tokens = share, math.inf if most_tokens is None else most_tokens
        self._now = now
        self._zone = given.log_window.quoting.zone if given.log_window else UTC
        self._prompt_limit = 0  # tokens; 0: not known yet
        self._characters = 0  # of lines and turns
        self._stored: list[Turn] = []
        self._turns: list[Turn] = []
        self._lines: list[WindowLine] = []

    async def load(self) -> None:
        """Read the turns of the conversation."""
        given = self._given
        _, self._stored = await given.store.recall(given.conversation, given.replaces)

    async def fit(self, steps: Sequence[Message], count: Counter) -> list[Message]:
        """Return the messages, including the `steps` of the run, within the window.

        If they are too long, tool results are dropped from the oldest on, but for the newest; then
        lines, half of them at a time; then turns, the last result and the sections. Raises
        ContextTooLong if the rest is still too long.
        """
        kept = list(steps)
        counted = await count(self._messages(kept))
        if counted.limit != self._prompt_limit:
            self._prompt_limit = counted.limit
            self._sections = within(
                self._sections, self._prompt_limit * CHARACTERS_PER_TOKEN // _SECTIONS_SHARE
            )
            most = min(int(self._prompt_limit * self._share), self._most_tokens)
            await self._fill(int(most * CHARACTERS_PER_TOKEN))
            counted = await count(self._messages(kept))
        while counted.tokens > counted.limit:
            if not (
                _leave_out_result(kept, spared=1)
                or (self._lines and await self._fill(self._characters // 2))
                or _leave_out(self._turns, 0)
                or _leave_out(self._found, -1)
                or _leave_out_result(kept, spared=0)
                or _leave_out(self._sections, 0)
            ):
                raise ContextTooLong(f"{counted.tokens} tokens, room for {counted.limit}")
            counted = await count(self._messages(kept))
        return self._messages(kept)

    async def _fill(self, characters: int) -> Literal[True]:
        """Choose the lines and turns to show, in at most so many characters; return True, as a step
        of `fit` that has left something out."""
        self._characters = characters
        if self._given.log_window:
            answers = partial(self._given.store.answers, self._given.room)
            self._lines = await self._given.log_window.lines(characters, answers)
        if not self._lines:
            self._turns = _newest(self._stored, characters)
            return True
        # What the window shows is repeated only for the tool results in the last few turns. An
        # answer that was given after this question was asked is not in its window.
        seen = {line.answers for line in self._lines}
        hidden = [
            turn
            for place, turn in enumerate(reversed(self._stored))
            if turn.question_event_id not in seen
            or (place < _STEPS_SHOWN and len(turn.messages) > 2)
        ]
        self._turns = _newest(hidden[::-1], characters // _TURNS_SHARE)
        return True

    def shown(self) -> list[ShownText]:
        """Return the log lines that the prompt shows, and the earlier turns that quote others."""
        lines = (ShownText(line.said, frozenset({line.id}), line.id) for line in self._lines)
        found = map(ShownText.from_event, self._found)
        return [*lines, *found, *(text for turn in self._turns for text in texts_shown(turn))]

    async def remember(self, messages: Sequence[Message]) -> None:
        """Store the question and the messages that answer it."""
        related = [event.id for event in self._found]
        await self._given.remember(self._now(), messages, related)
        # A conversation without a log goes on where its turns now begin, so that its next prompt
        # has the same beginning.
        if not self._lines and self._turns and self._turns[0] is not self._stored[0]:
            window = PromptWindow(0, self._turns[0].id)
            await self._given.store.move_window(self._given.conversation, window)

    def _messages(self, steps: Sequence[Message]) -> list[Message]:
        messages: list[Message] = [{"role": "system", "content": self._given.system}]
        lines = render_block([line.text for line in self._lines])
        is_channel = bool(self._lines and self._given.live_window)
        for turn in self._turns:
            before = ""
            # The window of a channel comes first, so that earlier turns need a time. A view by time
            # belongs to its question.
            if is_channel:
                # The time of its event, which ids follow, reads as in the window.
                event = turn.question_event_id
                time = from_micros(event * 1000) if event else turn.time
                before, lines = f"{lines}{stamp(time, self._zone)} ", ""
            messages += [
                _render_question(turn.messages[0], before),
                *map(_render_step, turn.messages[1:]),
            ]
        shown = {line.id for line in self._lines}
        found = [render_line(event, self._zone) for event in self._found if event.id not in shown]
        sections = "\n\n".join(filter(None, map(str, self._sections)))
        before = lines + render_block(found, EARLIER) + (f"{sections}\n\n" if sections else "")
        return [
            *messages,
            self._given.with_image(_render_question(self._given.question.message(), before)),
            *map(_render_step, steps),
        ]


def _render_question(question: Message, before: str = "") -> Message:
    """Return a question as it is sent: what goes before it, then the asker and the text."""
    who = "" if question["name"] == NO_ASKER else f"{question['name']} asks: "
    after = f"\n\n{AttachedFile(**question['file'])}" if "file" in question else ""
    content = before + escape_tags(f"{who}{question['content']}") + after
    return {"role": "user", "content": content}


def texts_shown(turn: Turn) -> Iterator[ShownText]:
    """Yield the messages of an earlier turn that quote lines of the log."""
    for message in turn.messages:
        if lines := message.get("quotes"):
            yield ShownText(message["content"], frozenset(lines), turn.question_event_id)


def _render_step(step: Message) -> Message:
    """Return a step as it is sent; one by a person is a question that joined the turn."""
    return _render_question(step) if "name" in step else step


def _newest(turns: Sequence[Turn], characters: int) -> list[Turn]:
    """Return all turns or, if they are too long, the newest ones in half of the characters: the
    beginning of the prompt then moves rarely."""
    sizes = [
        sum(
            len(f"{each['content'] or ''}{each.get('tool_calls', '')}{each.get('file', '')}")
            for each in messages
        )
        for messages in (turn.messages for turn in turns)
    ]
    if sum(sizes) <= characters:
        return list(turns)
    kept, left = len(turns), characters // 2
    while kept and sizes[kept - 1] <= left:
        kept -= 1
        left -= sizes[kept]
    return list(turns[kept:])


def _leave_out(items: list[T], index: int) -> bool:
    """Drop the item at `index`; return False if there is none."""
    return bool(items) and (items.pop(index) is not None)


def _leave_out_result(steps: list[Message], *, spared: int) -> bool:
    """Replace the oldest tool result that is still whole by a note, but for the newest `spared`;
    return False if there is none."""
    whole = [
        index
        for index, step in enumerate(steps)
        if step["role"] == "tool" and not step["content"].startswith(_DROPPED)
    ]
    if len(whole) <= spared:
        return False
    step = steps[whole[0]]
    calls = (call for each in steps for call in each.get("tool_calls", ()))
    names = {call["id"]: call["function"]["name"] for call in calls}
    tool = escape_tags(names[step["tool_call_id"]])
    note = f"{_DROPPED}: {len(step['content']):,} characters of {tool}]"
    steps[whole[0]] = step | {"content": note}
    return True


_SURELY = 0.9  # the probability that a question follows up, from which its thread is missed
_FOLLOW_UP_WITHIN = timedelta(hours=1)  # for which a question may follow up on the last turn
_MAX_ANSWER_LENGTH = 400  # characters of the last turn's answer that are shown
_LINK = re.compile(r"\s*https?://\S+")  # a small model would only copy it, and wrongly
_ABOUT_TIME = frozenset({"live", "local", "time"})  # whose answer may depend on the date
_RECENT_LINES = 12  # lines, for a question about the current conversation
_NOTHING_FOUND_HINT = (
    "If these lines do not answer the question, say that you find nothing about it here."
)


class CompactPromptContext:
    """The prompt for one question to a small model: one sentence of persona, lines, the question.

    Measured on models of 0.1 to 0.5 billion parameters: each irrelevant line costs correct answers,
    tags and explanations are recited, and the model copies its own earlier answers. Lines are
    therefore shown only if the search found them for this question or it asks about the current
    conversation; of earlier turns only the last, if the question follows up on it.

    `is_unsure`: none of the lines that were found surely answers the question, which only people
    here can. The model is then told that it may find nothing; without lines, it sees the last.
    """

    def __init__(
        self,
        given: PromptInput,
        *,
        reading: Reading,
        notes: str = "",
        is_unsure: bool = False,
        profile: Profile,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._given = given
        self._lines = list(given.found)
        self._reading = reading
        self._notes = notes
        self._is_unsure = is_unsure
        self._profile = profile
        assert profile.context_tokens is not None  # a compact profile has a limit
        self._limit = profile.context_tokens * CHARACTERS_PER_TOKEN
        # Lines of the current talk are in order of time, others the best first.
        self._is_about_talk = self._are_recent = reading.is_one_of(ABOUT_TALK)
        self._now = now
        self.past: list[Message] = []
        """The turn that the question follows up: a question and its answer, if any."""
        self._quoted: list[ShownText] = []

    async def load(self) -> None:
        """Read the last turn or the last lines, if the question follows up on them."""
        given, window = self._given, self._given.log_window
        if self._reading.follows_up and not self._lines:
            turns = await given.store.turns(given.conversation, end=given.replaces, limit=1)
            if turns and self._now() - turns[-1].time < _FOLLOW_UP_WITHIN:
                quoted, messages = list(texts_shown(turns[-1])), turns[-1].messages
                # Where lines are quoted in place of the model, it would only invent more of them.
                if not (quoted and self._profile.quotes == "all"):
                    self._quoted = quoted
                    said = (m["content"] for m in reversed(messages) if m["role"] == "assistant")
                    answer = next(said, None)  # without the tool calls
                    if answer and answer != Unsure.sentence:
                        shown = _LINK.sub("", answer)[:_MAX_ANSWER_LENGTH]
                        question = asked(escape_tags(messages[0]["content"]))
                        self.past = [question, {"role": "assistant", "content": shown}]
        if window and not self._lines and (self._is_unsure or self._is_about_talk):
            self._lines, self._are_recent = await window.recent(_RECENT_LINES), True
        if self._is_unsure and not self._is_about_talk:
            self._notes = "\n".join(filter(None, [self._notes, _NOTHING_FOUND_HINT]))

    @property
    def is_lost(self) -> bool:
        """True if a tiny model would only guess what the question follows up on."""
        shown = self.past or self._lines
        surely_follows = self._reading.is_one_of(GOING_ON, _SURELY)
        return self._profile.quotes == "all" and surely_follows and not shown

    async def fit(self, steps: Sequence[Message], count: Counter) -> list[Message]:
        """Return the messages. Lines beyond the budget or the window are dropped: of recent ones
        the oldest, else the worst.

        The size is estimated: tokens are counted only if the whole prompt exceeds the budget.
        Raises ContextTooLong if it does not fit the window even without lines.
        """
        while self._lines and sum(map(len, map(_line, self._lines))) > self._limit:
            self._drop_line()
        question = asked(escape_tags(self._given.question.text))["content"]
        notes = [self._notes] if self._notes else []
        if self._reading.is_one_of(_ABOUT_TIME):
            notes.append(f"It is {self._now():%A %d %B %Y, %H:%M %Z}.")
        system: Message = {"role": "system", "content": self._given.system}
        while True:
            # No tags around the lines: a small model recites them.
            lines = [*map(_line, self._lines), *notes]
            content = "\n".join([*lines, *([""] if lines else []), question])
            message = self._given.with_image({"role": "user", "content": content})
            messages = [system, *self.past, message, *steps]
            # A prompt within the budget is far below any window, so the server need not count it.
            characters = sum(len(message["content"] or "") for message in messages)
            if characters <= self._limit:
                return messages
            counted = await count(messages)
            if counted.tokens <= counted.limit:
                return messages
            if not self._lines:
                raise ContextTooLong(f"{counted.tokens} tokens, room for {counted.limit}")
            # As many as are surely too much, as each count is a request.
            excess = float(counted.tokens - counted.limit)
            while self._lines and excess > 0:
                excess -= len(self._drop_line()) / CHARACTERS_PER_TOKEN

    def _drop_line(self) -> str:
        """Drop the line that is worth least, and return its text."""
        return _line(self._lines.pop(0 if self._are_recent else -1))

    def shown(self) -> list[ShownText]:
        """Return the log lines that the prompt shows, and those that the earlier turn quotes."""
        return [*map(ShownText.from_event, self._lines), *self._quoted]

    async def remember(self, messages: Sequence[Message]) -> None:
        """Store the question and the messages that answer it."""
        await self._given.remember(self._now(), messages)


def asked(question: str) -> Message:
    """Return a question in the form of which a small model answers it."""
    return {"role": "user", "content": f"Question: {question}\nAnswer:"}


def _line(event: Event) -> str:
    """Render a line as a small model reads it best: who, and what they said."""
    text = " ".join(event.text.split())
    action = event.type is EventType.ACTION
    return escape_tags(f"* {event.nick} {text}" if action else f"<{event.nick}> {text}")
