"""The reading of a question: made once, before it is decided who answers.

`llm/client/reader.py` makes it. A question that could not be read has no kind, and is neither
answered with the nearest lines nor refused because of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_BEGINNING, _END = 160, 60
"""Characters at the beginning and the end of a longer question that are read: there people say what
they want, and the time to embed a text grows with its length."""

ABOUT_TALK = frozenset({"missed", "talk"})
"""Kinds of questions about the talk on screen as a whole."""

OF_PLACE = frozenset({"local", "person"})
"""Kinds of questions that only the people here, or their log, can answer."""

NOT_ASKED = frozenset({"creative", "order", "small_talk", "statement", "text"})
"""Kinds to which no line of the log is an answer."""

_SURE = 0.5  # probability from which a question is rather of these kinds than of all others
_SURELY_FOREIGN = 0.9  # a wrong refusal is worse than a weak answer


@dataclass(frozen=True, slots=True)
class Reading:
    """The probabilities of a question's kinds and languages, by name; none if it could not be
    read."""

    text: str
    kinds: Mapping[str, float] = field(default_factory=dict)
    languages: Mapping[str, float] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The likeliest kind, "" if the question could not be read."""
        return max(self.kinds, key=self.kinds.__getitem__, default="")

    @property
    def certainty(self) -> float:
        """The probability of the kind, from 0 to 1."""
        return self.kinds.get(self.kind, 0.0)

    def is_one_of(self, kinds: frozenset[str], at_least: float = _SURE) -> bool:
        """Return whether the question is of one of these kinds, with at least this probability."""
        return sum(self.kinds.get(kind, 0.0) for kind in kinds) >= at_least

    @property
    def is_foreign(self) -> bool:
        """True if the question is certainly not in English."""
        return sum(self.languages.values()) - self.languages.get("en", 0.0) >= _SURELY_FOREIGN


def shorten(text: str) -> str:
    """Return the parts of a text that are read."""
    return text if len(text) <= _BEGINNING + _END else f"{text[:_BEGINNING]} {text[-_END:]}"
