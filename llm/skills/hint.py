"""Hints: what the code of a skill says to a question, up to an answer that needs no model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo


@dataclass(frozen=True, slots=True)
class WorkedOut:
    """The result of a skill, a sentence for people. If it `is_whole`, it settles the whole question
    and is the answer as it stands; else it helps the model."""

    text: str
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class HintContext:
    """The time at which a question is asked, and the time zone of the person who asks."""

    now: datetime
    zone: tzinfo = UTC


Hint = Callable[[str, HintContext], Awaitable[WorkedOut | None]]
"""Returns what can be said to a question without a model (a sum, the time), or None."""
