"""How much waiting thoughts press, and how much a channel asks for a word of ours."""

from __future__ import annotations

PRESSING = 0.7
"""The pressure of thoughts that wakes."""

CONTACT = 0.35
"""The pressure for contact that wakes, while there is all energy."""

_MANY, _LONG = 5, 2 * 3600.0  # thoughts, seconds


def thought_pressure(count: int, oldest: float, energy: float) -> float:
    """Of `count` thoughts of which the oldest waits for `oldest` seconds: 0 to 1."""
    if count == 0:
        return 0.0
    waiting = 0.6 * min(1.0, count / _MANY) + 0.4 * min(1.0, oldest / _LONG)
    return min(1.0, waiting * (1 + 0.3 * (1 - energy)))


def contact_pressure(unanswered: float, quiet: float, mentions: float) -> float:
    """Mostly a question that nobody answers: half of what is measured there is enough."""
    return min(1.0, 0.7 * unanswered + 0.2 * quiet + 0.1 * mentions)
