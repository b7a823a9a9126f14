"""The prompt for a small model: one sentence of persona, relevant lines, and the question.

Measured on models of 0.1 to 0.5 billion parameters: each irrelevant line costs correct answers,
tags and explanations are recited, and the model copies its own earlier answers. Lines are therefore
shown only if the search found them for this question or it asks about the current conversation; of
earlier turns only the last, if the question follows up on it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from llm.client.profile import Profile
from llm.messages.errors import ContextTooLong, Unsure
from llm.messages.message import CHARACTERS_PER_TOKEN, Message, ShownText, escape_tags
from llm.prompt.context_manager import Counter, PromptInput, texts_shown
from llm.reading.reading import ABOUT_TALK, GOING_ON, Reading
from storage.chat_log.event import Event, EventType

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
    """The prompt for one question to a small model.

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
