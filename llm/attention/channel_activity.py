"""What is known of one channel: when people spoke, and which questions are open."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from llm.attention.message_features import MessageFeatures

WINDOW = 300.0
"""Seconds over which activity is measured."""

_LIVELY, _LIVELY_WITHIN = 10, 600.0  # lines in so many seconds are a conversation
_BUSY, _BUSY_WITHIN = 12, 60.0  # lines in so many seconds leave no room for another
_FULL = 30  # lines in a window that count as the most there is
_MENTIONS = 3
_PATIENCE = 600.0  # seconds without an answer until a question presses as much as it can
_FORGOTTEN = 1800.0  # seconds after which an open question is let go, and nobody is there any more
_SILENCE = 900.0  # seconds of silence that count as the most there is
_QUESTIONS = 20


@dataclass(frozen=True, slots=True)
class OpenQuestion:
    """Who has asked all, and when."""

    person: str
    time: float


@dataclass(slots=True)
class ChannelActivity:
    """Takes in lines; its values, each from 0 to 1, are for a time in seconds since 1970."""

    lines: deque[float] = field(default_factory=deque)
    mentions: deque[float] = field(default_factory=deque)
    questions: dict[str, OpenQuestion] = field(default_factory=dict)  # a person's first open one
    last: float = 0.0
    lively: bool = False

    def on_message(self, line: MessageFeatures, nick: str) -> None:
        """Take in a line; `nick` is our folded nick."""
        self.lines.append(line.time)
        _drop(self.lines, line.time - _LIVELY_WITHIN)
        if nick in line.words:
            self.mentions.append(line.time)
        self.lively = len(self.lines) >= _LIVELY
        self.last = line.time
        self._answer(line)
        if line.asks and nick not in line.words and len(self.questions) < _QUESTIONS:
            self.questions.setdefault(line.person, OpenQuestion(line.person, line.time))

    def activity(self, now: float) -> float:
        """How much is said."""
        return min(1.0, sum(time > now - WINDOW for time in self.lines) / _FULL)

    def mention_rate(self, now: float) -> float:
        """How often we are named."""
        _drop(self.mentions, now - WINDOW)
        return min(1.0, len(self.mentions) / _MENTIONS)

    def quiet(self, now: float) -> float:
        """How long nobody has said anything after a lively talk."""
        return min(1.0, max(0.0, now - self.last) / _SILENCE) if self.lively else 0.0

    def unanswered_level(self, now: float) -> float:
        """How long the oldest question waits to which nobody has said anything."""
        while (first := self.oldest()) and first.time < now - _FORGOTTEN:
            del self.questions[first.person]
        return min(1.0, (now - first.time) / _PATIENCE) if first else 0.0

    def availability(self, now: float) -> float:
        """How much room there is for a word of ours: none where too many speak, or nobody."""
        if now - self.last > _FORGOTTEN:
            return 0.0
        return 1.0 - min(1.0, sum(time > now - _BUSY_WITHIN for time in self.lines) / _BUSY)

    def oldest(self) -> OpenQuestion | None:
        """The open question that waits longest."""
        return min(self.questions.values(), key=lambda question: question.time, default=None)

    def mark_considered(self, until: float) -> None:
        """We have looked at all that was said until then: its questions are no reason any more."""
        self.questions = {p: q for p, q in self.questions.items() if q.time > until}

    def idle(self, now: float) -> bool:
        """Whether nothing is left that could become a reason."""
        return now - self.last > 2 * _FORGOTTEN

    def _answer(self, line: MessageFeatures) -> None:
        """Close the questions that a line answers: of those whom it names; the only one there is,
        where it names nobody; the speaker's own, when they have what they wanted."""
        others = [person for person in self.questions if person != line.person]
        named = [person for person in others if person in line.words]
        if not named and not line.addressed and not line.asks and len(others) == 1:
            named = others
        if line.settled:
            named.append(line.person)
        for person in named:
            self.questions.pop(person, None)


def _drop(times: deque[float], before: float) -> None:
    while times and times[0] < before:
        times.popleft()
