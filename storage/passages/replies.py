"""The probability that a line replies to a question that was asked shortly before it.

The probabilities were counted on #ubuntu logs with hand-made reply links (Kummerfeld et al., ACL
2019; 13,704 questions, `benchmarks/reply_counts.py`), by the distance of the line from the question
and by its addressee.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence

from storage.chat_log.event import Event
from storage.passages.words import asks

FOLLOWING_LINES = 15
"""The number of lines after a question among which replies are searched."""

# Upper bounds, in lines, of all bins of distance but the last; each table has a value for each bin.
_DISTANCES = (1, 2, 4, 8)
_TO_ASKER = (0.77, 0.78, 0.68, 0.45, 0.18)
_TO_NOBODY = (0.20, 0.15, 0.09, 0.03, 0.01)
_TO_ANOTHER = 0.01
_ALONE_CHANCE = 0.75  # of the next line where few people speak, as it need not name the asker
_FEW_PEOPLE = 2  # people besides the asker
_ADDRESS = re.compile(r"^@?(?P<nick>[^\s:,]{1,40})[:,]\s")


def replies(question: Event, following: Sequence[Event]) -> list[tuple[Event, float]]:
    """Return the possible replies among the lines just after a question, each with its probability:
    lines of other people that are no questions themselves."""
    others = {event.nick for event in following[: FOLLOWING_LINES // 2]} - {question.nick}
    asker = question.nick.lower()
    named = any(addressee(event.text) == asker for event in following[:FOLLOWING_LINES])
    few = len(others) <= _FEW_PEOPLE and not named
    found = []
    for distance, event in enumerate(following[:FOLLOWING_LINES], 1):
        if event.nick == question.nick or asks(event.text):
            continue
        to = addressee(event.text)
        if to not in (None, asker):
            chance = _TO_ANOTHER
        elif to is None and few and distance == 1:
            chance = _ALONE_CHANCE
        else:
            chance = (_TO_ASKER if to else _TO_NOBODY)[distance_bin(distance)]
        found.append((event, chance))
    return found


def distance_bin(distance: int) -> int:
    """Return the index of a distance in the tables of probabilities."""
    return bisect_left(_DISTANCES, distance)


def addressee(text: str) -> str | None:
    """Return the nick that a line addresses, in lower case; None if there is none."""
    match = _ADDRESS.match(text)
    return match["nick"].lower() if match else None
