"""Hints: what the code of a skill says to a question, up to an answer that needs no model."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from types import ModuleType

from terrarium.config import ConfigError


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


def hint_in(module: ModuleType) -> Hint | None:
    """Return the function `hint` of a skill's module, None where there is none.

    It may take the question alone or the question and a `HintContext`, and return a string, which
    never settles the whole question, or a `WorkedOut`. Raises ConfigError.
    """
    written = getattr(module, "hint", None)
    if written is None:
        return None
    if not inspect.iscoroutinefunction(written):
        raise ConfigError(f"{module.__file__}: hint: write it as `async def`")
    takes = len(inspect.signature(written).parameters)
    if takes not in (1, 2):
        raise ConfigError(f"{module.__file__}: hint: it takes a question, and a HintContext or not")

    async def hint(question: str, context: HintContext) -> WorkedOut | None:
        said = await (written(question) if takes == 1 else written(question, context))
        if isinstance(said, WorkedOut):
            return said if said.text else None
        return WorkedOut(str(said)) if said else None

    return hint
