"""The features of a line that the rule for speaking unasked uses: speaker, kind, nicks named."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

_ASKS = re.compile(r"\?(?=\s|$)")  # at the end of a word: URLs have a "?" inside
_ADDRESSED = re.compile(r"@?[^\s:,]{1,64}[:,]\s")
_SETTLED = re.compile(
    r"\b(thanks?|thx|ty|cheers|solved|fixed|never ?mind|nvm|got it|works now)\b", re.IGNORECASE
)
_WORD = re.compile(r"[^\s,:;.!?()<>\"']+")


@dataclass(frozen=True, slots=True)
class MessageFeatures:
    """The features of a line, without its text; `person` is a folded nick.

    `asks`: it is a question to everybody present. `addressed`: it begins with somebody's name.
    `settled`: the speaker has what they wanted. `words` are folded too, to find nicks in them.
    """

    time: datetime
    person: str
    asks: bool
    settled: bool
    addressed: bool
    words: frozenset[str]

    @classmethod
    def extract(
        cls, text: str, person: str, time: datetime, fold: Callable[[str], str] = str.lower
    ) -> MessageFeatures:
        """Return the features of a line that `person` said at `time`; nicks with the same `fold`
        are equal."""
        addressed = _ADDRESSED.match(text) is not None
        return cls(
            time,
            fold(person),
            asks=not addressed and _ASKS.search(text) is not None,
            settled=_SETTLED.search(text) is not None,
            addressed=addressed,
            words=frozenset(map(fold, _WORD.findall(text))),
        )
