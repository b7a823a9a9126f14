"""Random numbers, dice, coins and choices, because a model always picks the same "random" one."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from llm.intents.question_text import plain, without_courtesies
from llm.skills.hint import HintContext, WorkedOut
from llm.tools.toolbox import tool

_COUNTS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}
_COUNT = r"(?P<count>\d{1,2}|a|an|the|one|two|three|four|five|six|some|my)"
_AGAIN = r"(?: again| once more)?"
_NOTATION = re.compile(
    r"(?:(?:roll|throw|würfle|würfel) )?(?:me )?(?:a |the )?"
    r"(?P<count>\d{0,2})[dw](?P<sides>\d{1,4}|%)(?: ?(?P<sign>[+-]) ?(?P<more>\d{1,4}))?" + _AGAIN
)
_DICE = re.compile(
    rf"(?:roll|throw|cast) (?:me )?(?:{_COUNT} )?(?:(?P<sides>\d{{1,4}})[- ]sided )?"
    rf"(?:die|dice|dices){_AGAIN}|würfle(?: (?:bitte|mal))?|roll(?: them)?"
)
_COIN = re.compile(
    rf"(?:flip|toss|throw) (?:me )?(?:{_COUNT} )?coins?{_AGAIN}|coin (?:flip|toss)"
    r"|heads or tails|wirf (?:eine|die) münze|kopf oder zahl"
)
_CHOICE = re.compile(
    r"(?:(?:choose|pick)(?: for me)?(?: (?:one|randomly|at random|something))?|wähle?)"
    r"(?P<marked> (?:between|from|of|among|out of|zwischen)(?: (?:these|the following))?:?|:)?"
    r" (?P<things>.+)"
)
_NUMBER = re.compile(
    r"(?:(?:give me |pick |choose |generate |say |what is )?(?:a |any )?(?:random )?number"
    r"|random(?: number| integer)?|zufallszahl|eine zufallszahl)"
    r"(?: (?:between|from|in|within|zwischen|von))? (?P<low>-?\d{1,12})"
    r" ?(?:and|to|-|\.\.|through|und|bis) ?(?P<high>-?\d{1,12})"
)
_ANY_NUMBER = re.compile(r"(?:give me |pick |generate )?(?:a |any )random number|random number")
_SPLIT = re.compile(
    r"\s*,\s*(?:or\s+|and\s+|oder\s+|und\s+)?|\s+(?:or|and|vs|oder|und)\s+|\s*\|\s*"
)
_MAX_CHOICES, _MAX_CHOICE_LENGTH = 30, 60

HINT_CUE = re.compile(  # every question about chance contains one of these, such as "2d6"
    r"[dw][\d%]|roll|throw|cast|würf|flip|toss|coin|heads|wirf|kopf|choose|pick|wähl|random|number"
    r"|zufall",
    re.IGNORECASE,
)


async def hint(question: str, context: HintContext) -> WorkedOut | None:
    """Return the result of a roll, flip or pick if the question asks for nothing else."""
    asked = without_courtesies(question)
    if said := _coin(asked) or _dice(asked) or _number(asked):
        return WorkedOut(said, is_whole=True)
    things = _choices(asked, plain(question))
    if not things:
        return None
    return WorkedOut(f"Picked at random: {random.choice(things)}.", is_whole=True, free=things)


@tool
async def roll_dice(
    count: Annotated[int, Field(ge=1, le=99)] = 1,
    sides: Annotated[int, Field(ge=2, le=9999)] = 6,
) -> str:
    """Roll dice; one with two sides is a coin."""
    return _roll(count, sides)


def _coin(asked: str) -> str | None:
    match = _COIN.fullmatch(asked)
    if not match:
        return None
    sides = [random.choice(["heads", "tails"]) for _ in range(_count(match["count"]))]
    if len(sides) == 1:
        return f"The coin shows {sides[0]}."
    return f"The coins show {', '.join(sides)}: heads {_times(sides.count('heads'))}."


def _dice(asked: str) -> str | None:
    if match := _NOTATION.fullmatch(asked):
        count, sides = int(match["count"] or 1), int(match["sides"].replace("%", "100"))
        more = int(f"{match['sign']}{match['more']}") if match["more"] else 0
    elif match := _DICE.fullmatch(asked):
        if asked.startswith("roll") and not re.search("di(?:e|ces?)", asked):
            return None
        plural = match["count"] in (None, "the", "some", "my") and "dice" in asked
        count, sides = 2 if plural else _count(match["count"]), int(match["sides"] or 6)
        more = 0
    else:
        return None
    if not 1 <= count <= 99 or sides < 2:
        return None
    name = f"{count}d{sides}{f'{more:+}' if more else ''}"
    return f"Rolled {name}: {_roll(count, sides, more)}."


def _number(asked: str) -> str | None:
    if match := _NUMBER.fullmatch(asked):
        low, high = sorted((int(match["low"]), int(match["high"])))
        return f"Picked at random from {low} to {high}: {random.randint(low, high)}."
    if _ANY_NUMBER.fullmatch(asked):
        return f"Picked at random from 1 to 100: {random.randint(1, 100)}."
    return None


def _choices(asked: str, written: str) -> tuple[str, ...]:
    """Return the things to choose from, spelled as in the question; none if it asks no choice."""
    match = _CHOICE.fullmatch(asked)
    if not match or not (match["marked"] or re.search(r"\b(?:or|oder)\b", match["things"])):
        return ()  # "pick a and b" may be anything
    at = written.lower().find(match["things"])
    things = [each.strip(" '\"") for each in _SPLIT.split(written[at:][: len(match["things"])])]
    listed = tuple(each for each in things if each)
    if not 2 <= len(listed) <= _MAX_CHOICES or max(map(len, listed)) > _MAX_CHOICE_LENGTH:
        return ()
    return listed


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


def _count(word: str | None) -> int:
    if word and word.isdecimal():
        return max(1, int(word))
    return _COUNTS.get(word or "a", 1)


def _roll(count: int, sides: int, more: int = 0) -> str:
    rolls: Sequence[int] = [random.randint(1, sides) for _ in range(count)]
    total = sum(rolls) + more
    if count == 1 and not more:
        return str(total)
    shown = " + ".join(map(str, rolls)) + (
        f" {'+' if more > 0 else '-'} {abs(more)}" if more else ""
    )
    return f"{shown} = {total}"
