"""Hints: what the code of a skill says to a question, up to an answer that needs no model.

The second half has questions without their courtesies, so that the few words that matter can be
compared.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
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
    never settles the whole question, or a `WorkedOut`. Where the module has a pattern `HINT_CUE`,
    it is called only for questions in which that is found. Raises ConfigError.
    """
    written = getattr(module, "hint", None)
    if written is None:
        return None
    if not inspect.iscoroutinefunction(written):
        raise ConfigError(f"{module.__file__}: hint: write it as `async def`")
    takes = len(inspect.signature(written).parameters)
    if takes not in (1, 2):
        raise ConfigError(f"{module.__file__}: hint: it takes a question, and a HintContext or not")

    cue = getattr(module, "HINT_CUE", None)
    if cue is not None and not isinstance(cue, re.Pattern):
        raise ConfigError(f"{module.__file__}: HINT_CUE: write it as `re.compile(...)`")

    async def hint(question: str, context: HintContext) -> WorkedOut | None:
        if cue is not None and not cue.search(question):
            return None
        said = await (written(question) if takes == 1 else written(question, context))
        if isinstance(said, WorkedOut):
            return said if said.text else None
        return WorkedOut(str(said)) if said else None

    return hint


LONGEST = 400
"""The most characters of a question that skills look at."""

_BEFORE = re.compile(
    r"(?:(?:hey|hi|hello|ok|okay|so|well|um+|please|pls|bitte|and|quick question|question|sag mal)"
    r"(?:\s*[,:!.]+\s*|\s+)"
    r"|(?:can|could|would|will) you (?:please |kindly )?(?=\w)"
    r"|(?:kannst|könntest) du (?:mir )?(?:bitte )?(?=\w)"
    r"|do you (?:happen to )?know (?=what|how|when|which|the|if)"
    r"|(?:please )?(?:tell|show|give) me (?=what|how|when|which|the|a\b|today|if)"
    r"|sag(?:e)? mir (?:bitte )?(?=was|wie|wann)"
    r"|(?:i want to know|i'd like to know|i wonder|let me know) (?=what|how|when|which|if))",
    re.IGNORECASE,
)
_AFTER = re.compile(
    r"(?:[\s,]+(?:please|pls|bitte|thanks|thank you|thx|danke|for me|exactly|genau))+[\s.!?]*$",
    re.IGNORECASE,
)
_END = re.compile(r"(?:[\s?.,;]|(?<!\d)!)+$")  # "5!" is a sum
_TURNED = re.compile(  # "(tell me) what time it is"
    r"^(what(?: (?:time|day|date|year|week|month))?|when|how much) ((?!is |are |was )[^?]+)"
    r" (is|are|was)$"
)
_QUOTES = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "„": '"', "−": "-", "–": "-"})


def plain(question: str) -> str:
    """Return a question with straight quotes and single spaces; nothing when it is too long."""
    text = " ".join(question.translate(_QUOTES).split())
    return text if len(text) <= LONGEST else ""


def wish_in(question: str) -> str:
    """Return `plain(question)` without "hey", "can you", "please", "?" and so on."""
    text = plain(question)
    for _ in range(4):  # "hey, can you please tell me what ..."
        if not (match := _BEFORE.match(text)):
            break
        text = text[match.end() :]
    return _END.sub("", _AFTER.sub("", _END.sub("", text)))


def without_courtesies(question: str) -> str:
    """Return `wish_in(question)` in lower case, "(tell me) what X is" turned to "what is X"."""
    return _TURNED.sub(r"\1 \3 \2", wish_in(question).lower())


def forms(*patterns: str) -> tuple[re.Pattern[str], ...]:
    """Return the forms that a question may have, compiled."""
    return tuple(map(re.compile, patterns))


def found_in(questions: tuple[re.Pattern[str], ...], text: str) -> Mapping[str, str] | None:
    """Return the named parts of the first form that the whole text has, None when it has none.

    A part that the form leaves out is the empty string.
    """
    for form in questions:
        if match := form.fullmatch(text):
            return {name: part or "" for name, part in match.groupdict().items()}
    return None
