"""Rate-limited replies to CTCP queries (https://modern.ircdocs.horse/ctcp)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib.metadata import version

REPLY_INTERVAL = timedelta(seconds=2)
"""Minimum time between two replies to one person; queries in between are not answered."""

MAX_REPLIES, REPLIES_WINDOW = 5, timedelta(seconds=10)
"""Maximum number of replies to all people together, and the time window it applies to. A flood of
queries would otherwise fill our paced send queue and delay everything else."""

_MAX_PEOPLE = 200  # people whose last reply is remembered
_UNSENDABLE = str.maketrans("", "", "\0\r\n\x01")


class CtcpResponder:
    """The replies to CTCP queries on one connection."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._last: OrderedDict[str, datetime] = OrderedDict()
        self._times: list[datetime] = []

    def answer(self, person: str, word: str, rest: str) -> str | None:
        """Return the reply to the CTCP query `word` with the argument `rest`.

        `person` is the sender's `user@host`, or nick if that is unknown. Return None for an unknown
        query or if the limits are exceeded.
        """
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
        self._times = [time for time in self._times if now - time < REPLIES_WINDOW]
        last = self._last.get(person)
        if len(self._times) >= MAX_REPLIES or (last and now - last < REPLY_INTERVAL):
            return False
        self._times.append(now)
        self._last[person] = now
        self._last.move_to_end(person)
        if len(self._last) > _MAX_PEOPLE:
            self._last.popitem(last=False)
        return True
