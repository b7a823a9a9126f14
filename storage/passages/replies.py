"""The chance that a line replies to a question that was asked shortly before it.

The chances were counted on #ubuntu logs with hand-made reply links (Kummerfeld et al., ACL 2019;
13,704 questions, `benchmarks/reply_counts.py`): how many lines later it was said, and to whom.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from storage.chat_log.event import Event
from storage.passages.words import asks

NEXT = 15
"""Lines after a question among which a reply is looked for."""

_DISTANCES = (1, 2, 4, 8)
_TO_ASKER = (0.77, 0.78, 0.68, 0.45, 0.18)
_TO_NOBODY = (0.20, 0.15, 0.09, 0.03, 0.01)
_TO_ANOTHER = 0.01
_ALONE = 0.75  # where few people speak, the next line needs no name
_FEW = 2  # people besides who asks
_ADDRESS = re.compile(r"^@?(?P<nick>[^\s:,]{1,40})[:,]\s")


@dataclass(frozen=True, slots=True)
class ReplyChance:
    """A line and the chance that it replies to the question before it."""

    event: Event
    chance: float


def replies(question: Event, following: Sequence[Event]) -> list[ReplyChance]:
    """Return the lines of others among those just after a question, each with its chance."""
    others = {event.nick for event in following[: NEXT // 2]} - {question.nick}
    asker = question.nick.lower()
    named = any(addressee(event.text) == asker for event in following[:NEXT])
    few = len(others) <= _FEW and not named
    found = []
    for distance, event in enumerate(following[:NEXT], 1):
        if event.nick != question.nick and not asks(event.text):
            found.append(ReplyChance(event, _chance(question.nick, event.text, distance, few)))
    return found


def distance_bin(distance: int) -> int:
    """Return the place of a distance in the tables of chances."""
    return bisect_left(_DISTANCES, distance)


def addressee(text: str) -> str | None:
    """Return the nick that a line addresses, in lower case; None if there is none."""
    match = _ADDRESS.match(text)
    return match["nick"].lower() if match else None


def _chance(asker: str, text: str, distance: int, few: bool) -> float:
    to = addressee(text)
    if to == asker.lower():
        return _TO_ASKER[distance_bin(distance)]
    if to is not None:
        return _TO_ANOTHER
    return _ALONE if few and distance == 1 else _TO_NOBODY[distance_bin(distance)]
