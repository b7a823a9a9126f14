"""Answers to CTCP queries (https://modern.ircdocs.horse/ctcp), within limits."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib.metadata import version

EVERY = timedelta(seconds=2)
"""The least time between two answers to one person; what comes faster is not answered."""

MOST, WITHIN = 5, timedelta(seconds=10)
"""Answers to all people together in so much time."""

_KEPT = 200  # people
_UNSENDABLE = str.maketrans("", "", "\0\r\n\x01")


class CtcpResponder:
    """Answers queries. `now` returns the time."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._last: OrderedDict[str, datetime] = OrderedDict()
        self._times: list[datetime] = []

    def answer(self, person: str, word: str, rest: str) -> str | None:
        """Return the answer to the query `word` of a person, known by their address; None where
        there is none, or it would be too many."""
        answers = {
            "CLIENTINFO": "ACTION CLIENTINFO PING SOURCE TIME VERSION",
            "PING": rest,
            "SOURCE": "the Python package terrarium; ask whoever runs me for its address",
            "TIME": self._now().astimezone(UTC).strftime("%a, %d %b %Y %H:%M:%S +0000"),
            "VERSION": f"Terrarium {version('terrarium')}",
        }
        if word not in answers or not self._may_answer(person):
            return None
        return f"{word} {answers[word]}".translate(_UNSENDABLE).strip()

    def _may_answer(self, person: str) -> bool:
        now = self._now()
        self._times = [time for time in self._times if now - time < WITHIN]
        last = self._last.get(person)
        if len(self._times) >= MOST or (last and now - last < EVERY):
            return False
        self._times.append(now)
        self._last[person] = now
        self._last.move_to_end(person)
        if len(self._last) > _KEPT:
            self._last.popitem(last=False)
        return True
