"""Energy: the token budget made visible. Words cost it, time gives it back."""

from __future__ import annotations

FULL, LEAST = 1.0, 0.05

WEARY = 0.3
"""Below it only what somebody waits for wakes."""


class TokenBudget:
    """A level from `LEAST` to `FULL`. `tokens` are what a full one is worth, `per_hour` is the
    share of it that comes back in an hour."""

    def __init__(self, tokens: int, per_hour: float, level: float = FULL) -> None:
        self._tokens, self._per_hour = tokens, per_hour
        self._level = min(FULL, max(LEAST, level))

    @property
    def level(self) -> float:
        """How much there is; also how alert we are."""
        return self._level

    @property
    def factor(self) -> float:
        """By how much a threshold rises: 1 when fresh, nearly 2 when exhausted."""
        return 1 + (FULL - self._level)

    def spend(self, tokens: int) -> None:
        """So many tokens were read and written."""
        self._level = max(LEAST, self._level - tokens / self._tokens)

    def recover(self, seconds: float) -> None:
        """Time has passed."""
        self._level = min(FULL, self._level + self._per_hour * seconds / 3600)
