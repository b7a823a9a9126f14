"""Hints: results that a skill computes for a question in code, up to an answer without a model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from llm.reading.reading import Reading


@dataclass(frozen=True, slots=True)
class WorkedOut:
    """The result of a hint, a sentence for people. If it `is_whole`, it answers the whole question
    and is sent as it is; otherwise it is given to the model.

    `free` are the pieces of the question that were taken over as they stand, such as the things to
    choose from: where one of them may hold another request, a capable model is asked instead.
    """

    text: str
    is_whole: bool = False
    free: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HintContext:
    """The time of a question, the asker's time zone, and how it was read, if it was."""

    now: datetime
    zone: tzinfo = UTC
    reading: Reading | None = None


Hint = Callable[[str, HintContext], Awaitable[WorkedOut | None]]
"""Computes an answer to a question without a model (a sum, the time), or returns None."""
