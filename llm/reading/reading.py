"""The reading of a question: made once, before it is decided who answers.

`llm/client/client.py` makes it. A question that could not be read has no kind: it is answered by
exact commands, skills and lines that surely answer it, and else by the model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from llm.reading.slots import Slots

MOST_TOKENS = 40
"""Tokens of a question that are embedded, as the time to do so grows with them. Few sentences have
as many; strange scripts and symbols need up to one for each character."""

_BEGINNING, _END = 120, 40
"""Characters at the beginning and the end of a longer question that are read: there people say what
they want."""
_REPEATED = re.compile(r"(.{1,2}?)\1{3,}", re.DOTALL)

ABOUT_TALK = frozenset({"missed", "talk"})
"""Kinds of questions about the talk on screen as a whole."""

OF_PLACE = frozenset({"local", "person"})
"""Kinds of questions that only the people here, or their log, can answer."""

ABOUT_LOG = frozenset({"who_said", "said_by", "when_said", "search"})
"""Kinds of questions that ask for lines of the log."""

FROM_HERE = (
    OF_PLACE
    | ABOUT_LOG
    | ABOUT_TALK
    | {"counts", "links", "operators", "present", "recall", "seen", "topic"}
)
"""Kinds of questions that nobody elsewhere can answer."""

OF_WORLD = frozenset({"follow_up", "general", "live"})
"""Kinds to which a line that is only similar is no answer."""

NOT_ASKED = frozenset(
    {"about_bot", "calculation", "creative", "dice", "help", "more", "order", "remind", "schedule"}
    | {"small_talk", "statement", "stop", "tell", "text", "time"}
)
"""Kinds to which no line of the log is an answer."""

_LONG = frozenset({"creative", "howto", "text", "page", "missed"})
_GOING_ON = frozenset({"follow_up", "more"})
_SURE = 0.5  # probability from which a question is rather of these kinds than of all others
_SURELY_FOREIGN = 0.9  # a wrong refusal is worse than a weak answer


@dataclass(frozen=True, slots=True)
class Reading:
    """The probabilities of a question's kinds, languages and courtesies, by name, and the slots of
    the likeliest kind; none if it could not be read. `vector` is its embedding as a query."""

    text: str
    kinds: Mapping[str, float] = field(default_factory=dict)
    languages: Mapping[str, float] = field(default_factory=dict)
    courtesies: Mapping[str, float] = field(default_factory=dict)
    slots: Slots = field(default_factory=Slots)
    vector: Sequence[float] = field(default=(), repr=False)

    @property
    def kind(self) -> str:
        """The likeliest kind, "" if the question could not be read."""
        return _likeliest(self.kinds)

    @property
    def sure_kind(self) -> str:
        """The kind if it is likelier than all others together, else ""."""
        return self.kind if self.certainty >= _SURE else ""

    @property
    def certainty(self) -> float:
        """The probability of the kind, from 0 to 1."""
        return self.kinds.get(self.kind, 0.0)

    @property
    def language(self) -> str:
        """The likeliest language as an ISO 639-1 code, "" if it could not be read."""
        return _likeliest(self.languages)

    @property
    def courtesy(self) -> str:
        """The likeliest kind of small talk, "" if the sentence is none."""
        return _likeliest(self.courtesies) if self.kind == "small_talk" else ""

    @property
    def follows_up(self) -> bool:
        """True if the question makes sense only after what was said before it."""
        return self.is_one_of(_GOING_ON)

    @property
    def wants_long(self) -> bool:
        """True if a long answer fits the question."""
        return self.is_one_of(_LONG)

    @property
    def is_foreign(self) -> bool:
        """True if the question is certainly not in English."""
        return sum(self.languages.values()) - self.languages.get("en", 0.0) >= _SURELY_FOREIGN

    def is_one_of(self, kinds: frozenset[str], at_least: float = _SURE) -> bool:
        """Return whether the question is of one of these kinds, with at least this probability."""
        return sum(self.kinds.get(kind, 0.0) for kind in kinds) >= at_least


def _likeliest(shares: Mapping[str, float]) -> str:
    return max(shares, key=shares.__getitem__, default="")


def shorten(text: str) -> str:
    """Return the parts of a text that are read."""
    text = _REPEATED.sub(r"\1\1\1", text)
    is_short = len(text) <= _BEGINNING + _END
    return text if is_short else f"{text[:_BEGINNING]} {text[-_END:]}"
