"""The people and the topic of a room now, as its medium knows them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RoomView:
    """The people in a room now: their nicks, those of its operators, and the topic; `shown` spells
    a nick so that nobody is highlighted."""

    members: Sequence[str] = ()
    operators: Sequence[str] = ()
    topic: str = ""
    shown: Callable[[str], str] = str
