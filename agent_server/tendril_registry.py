"""The tendrils that have reported themselves lately, in memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

EXPIRES = 30.0
"""Seconds after which a tendril that has not reported itself again is gone."""

MOST = 100
"""Tendrils of one key; a report of one more is refused."""


@dataclass(frozen=True, slots=True)
class TendrilReport:
    """The report of a tendril: its `state` ("ready", "waiting", ...), the tools of its model, how
    many questions it is answering or has waiting, and the tokens it has used today (UTC)."""

    state: str
    tools: tuple[str, ...] = ()
    pending: int = 0
    tokens_today: int = 0


@dataclass(frozen=True, slots=True)
class RegisteredTendril:
    """A tendril by its `name` and the name of the key that reported it; `seen` is in seconds of
    the registry's clock."""

    name: str
    key: str
    report: TendrilReport
    seen: float


@dataclass(slots=True)
class TendrilRegistry:
    """The tendrils by key and name, so that no key can speak for another one's tendril."""

    clock: Callable[[], float] = time.monotonic
    _known: dict[tuple[str, str], RegisteredTendril] = field(default_factory=dict)

    def record(self, name: str, key: str, report: TendrilReport) -> bool:
        """Take in a report; return False when the key has too many tendrils already."""
        self._drop_expired()
        names = {known for owner, known in self._known if owner == key}
        if len(names) >= MOST and name not in names:
            return False
        self._known[key, name] = RegisteredTendril(name, key, report, self.clock())
        return True

    def present(self) -> list[RegisteredTendril]:
        """Return the tendrils that are there, by name."""
        self._drop_expired()
        return sorted(self._known.values(), key=lambda each: (each.name, each.key))

    def age(self, tendril: RegisteredTendril) -> float:
        """Return the seconds since a tendril has reported itself."""
        return self.clock() - tendril.seen

    def _drop_expired(self) -> None:
        now = self.clock()
        gone = [key for key, each in self._known.items() if now - each.seen > EXPIRES]
        for key in gone:
            del self._known[key]
