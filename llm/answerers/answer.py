"""Answers without the model, and the question as those who give them see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from llm.client.profile import Profile
from llm.log_questions.answers import QuotedAnswer
from llm.prompt.log_window import LogWindow
from llm.reading.reading import Reading


@dataclass(frozen=True, slots=True)
class RoomView:
    """The people in a room now: their nicks, those of its operators, and the topic; `shown` spells
    a nick so that nobody is highlighted."""

    members: Sequence[str] = ()
    operators: Sequence[str] = ()
    topic: str = ""
    shown: Callable[[str], str] = str


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedQuestion:
    """A question as answerers see it, beside its reading.

    `worked_out` is the answer of a skill, "" for none; `quoted` are the lines of the log that
    answer the question, and `log_window` that log; `room` is who and what is there now. Each is
    None where there is none.
    """

    profile: Profile
    worked_out: str = ""
    quoted: QuotedAnswer | None = None
    log_window: LogWindow | None = None
    room: RoomView | None = None


@dataclass(frozen=True, slots=True)
class DirectAnswer:
    """An answer without the model: its text, the name of the answerer, how certain that is, from 0
    to 1, and the log lines that the text quotes.

    Lines that are quoted but not named here would outlive the erasure of who said them.
    """

    text: str
    by: str
    certainty: float = 1.0
    quoted: QuotedAnswer | None = None


class Answerer(Protocol):
    """Answers some questions without the model."""

    async def answer(self, reading: Reading, asked: AskedQuestion) -> DirectAnswer | None:
        """Return the answer, or None to leave the question to the next. Raises StorageError."""
