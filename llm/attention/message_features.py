"""Features of a line that the rule goes by: who speaks, what kind of line, whom it names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

_ASKS = re.compile(r"\?(?=\s|$)")
_ADDRESSED = re.compile(r"@?[^\s:,]{1,64}[:,]\s")
_SETTLED = re.compile(
    r"\b(thanks?|thx|ty|cheers|solved|fixed|never ?mind|nvm|got it|works now)\b", re.IGNORECASE
)
_WORD = re.compile(r"[^\s,:;.!?()<>\"']+")


@dataclass(frozen=True, slots=True)
class MessageFeatures:
    """A line without its text; `person` is a folded nick.

    `asks` is for all who are there, not for one who is addressed; `settled` says that the speaker
    has what they wanted; `words` are folded, to find nicks among them.
    """

    time: datetime
    person: str
    asks: bool
    settled: bool
    addressed: bool
    words: frozenset[str]

    @classmethod
    def extract(cls, text: str, person: str, time: datetime) -> MessageFeatures:
        """Return the features of the line that `person` said."""
        addressed = _ADDRESSED.match(text) is not None
        return cls(
            time,
            person.lower(),
            asks=not addressed and _ASKS.search(text) is not None,
            settled=_SETTLED.search(text) is not None,
            addressed=addressed,
            words=frozenset(_WORD.findall(text.lower())),
        )
