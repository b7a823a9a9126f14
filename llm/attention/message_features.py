"""What attention sees of a line: who speaks, whether it asks, whom it names. Never its words."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ASKS = re.compile(r"\?(?=\s|$)")
_ADDRESSED = re.compile(r"@?[^\s:,]{1,64}[:,]\s")
_SETTLED = re.compile(
    r"\b(thanks?|thx|ty|cheers|solved|fixed|never ?mind|nvm|got it|works now)\b", re.IGNORECASE
)
_WORD = re.compile(r"[^\s,:;.!?()<>\"']+")


@dataclass(frozen=True, slots=True)
class MessageFeatures:
    """`time` in seconds since 1970, `person` a folded nick.

    `asks` means all who are there, not one who is addressed; `settled` that whoever speaks has
    what they wanted; `words` are folded, to find nicks among them.
    """

    time: float
    person: str
    asks: bool
    settled: bool
    addressed: bool
    words: frozenset[str]

    @classmethod
    def extract(cls, text: str, person: str, time: float) -> MessageFeatures:
        """The line that `text` is."""
        addressed = _ADDRESSED.match(text) is not None
        return cls(
            time,
            person.lower(),
            asks=not addressed and _ASKS.search(text) is not None,
            settled=_SETTLED.search(text) is not None,
            addressed=addressed,
            words=frozenset(_WORD.findall(text.lower())),
        )
