"""Random numbers, dice, coins and choices, because a model always picks the same "random" one."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from llm.reading.numbers import numbers_in_digits
from llm.reading.question_text import strip_courtesies
from llm.skills.hint import HintContext, WorkedOut
from llm.tools.toolbox import tool

_KINDS = frozenset({"dice"})
_COUNT = r"(?:me )?(?P<article>an? |eine )?(?:the |some |my |die )?(?:(?P<count>\d{1,2}) )?"
_AGAIN = r"(?: again| once more)?"
_NOTATION = re.compile(
    r"(?:(?:roll|throw|cast|würfle?) )?(?:me )?(?:an? |the )?\b"
    r"(?P<count>\d{0,2})[dw](?P<sides>\d{1,4}\b|%)(?: ?(?P<more>[+-] ?\d{1,4}))?" + _AGAIN
)
_DICE = re.compile(
    rf"(?:roll|throw|cast) {_COUNT}(?:(?P<sides>\d{{1,4}})[- ]sided )?"
    rf"(?:die|(?P<dice>dices?))\b{_AGAIN}|würfle"
)
_COIN = re.compile(
    rf"(?:flip|toss|throw|wirf) {_COUNT}(?:coins?|münzen?)\b{_AGAIN}|coin (?:flip|toss)"
    r"|heads or tails|kopf oder zahl"
)
_NUMBER = re.compile(
    r"(?:(?:give me|pick|choose|generate|say|what is) )?(?:an? |any |eine )?"
    r"(?:random (?:number|integer)|(?:number|random|zufallszahl)(?= .*\d))"
    r"(?:(?: (?:between|from|in|within|zwischen|von))? (?P<low>-?\d{1,12})"
    r" ?(?:and|to|-|\.\.|through|und|bis) ?(?P<high>-?\d{1,12}))?"
)
_CHOICE = re.compile(
    r"(?:(?:choose|pick)(?: for (?:me|us))?(?: (?:one|randomly|at random|something))?|wähle?)"
    r"(?P<marked> (?:between|from|of|among|out of|zwischen)(?: (?:these|the following))?:?|:)?"
    r" (?P<things>.+)",
    re.IGNORECASE,
)
_SPLIT = re.compile(r"\s*[,|]\s*(?:(?:or|and|oder|und)\s+)?|\s+(?:or|and|vs|oder|und)\s+")
_MAX_CHOICES, _MAX_CHOICE_LENGTH = 30, 60


async def hint(question: str, context: HintContext) -> WorkedOut | None:
    """Return the result of a roll, flip or pick if the question asks for nothing else."""
    written = strip_courtesies(question)
    if things := _choices(written):
        return WorkedOut(f"Picked at random: {random.choice(things)}.", is_whole=True, free=things)
    asked = numbers_in_digits(written.lower())
    is_sure = context.reading is not None and context.reading.is_one_of(_KINDS)
    for form, answer in ((_COIN, _coin), (_NOTATION, _dice), (_DICE, _dice), (_NUMBER, _number)):
        # Surely a matter of chance: then it may say more around it, such as what the coin is for.
        match = form.search(asked) if is_sure else form.fullmatch(asked)
        beside = asked[: match.start()] + asked[match.end() :] if match else ""
        if re.search(r"\d", beside):
            return None  # "2d20, keep the higher 1", "the coin shall decide, best of 3"
        if match and (said := answer({key: part or "" for key, part in match.groupdict().items()})):
            return WorkedOut(said, is_whole=True, free=(beside,))
    return None


@tool
async def roll_dice(
    count: Annotated[int, Field(ge=1, le=99)] = 1,
    sides: Annotated[int, Field(ge=2, le=9999)] = 6,
) -> str:
    """Roll dice; one with two sides is a coin."""
    return _roll(count, sides)


def _coin(asked: Mapping[str, str]) -> str:
    sides = [random.choice(["heads", "tails"]) for _ in range(max(1, int(asked["count"] or 1)))]
    if len(sides) == 1:
        return f"The coin shows {sides[0]}."
    return f"The coins show {', '.join(sides)}: heads {sides.count('heads')} times."


def _dice(asked: Mapping[str, str]) -> str | None:
    several = 2 if asked.get("dice") and not asked["article"] else 1
    count, sides = int(asked["count"] or several), int(asked["sides"].replace("%", "100") or 6)
    more = int(asked.get("more", "").replace(" ", "") or 0)
    if count < 1 or sides < 2:
        return None
    name = f"{count}d{sides}{f'{more:+}' if more else ''}"
    return f"Rolled {name}: {_roll(count, sides, more)}."


def _number(asked: Mapping[str, str]) -> str:
    low, high = sorted((int(asked["low"] or 1), int(asked["high"] or 100)))
    return f"Picked at random from {low} to {high}: {random.randint(low, high)}."


def _choices(asked: str) -> tuple[str, ...]:
    """Return the things to choose from; none if the question asks for no choice."""
    match = _CHOICE.fullmatch(asked)
    things = _SPLIT.split(match["things"]) if match else []
    listed = tuple(filter(None, (each.strip(" '\"") for each in things)))
    is_marked = match and (match["marked"] or re.search(r"\bo(?:r|der)\b", match["things"]))
    is_list = 2 <= len(listed) <= _MAX_CHOICES and max(map(len, listed)) <= _MAX_CHOICE_LENGTH
    return listed if is_marked and is_list else ()  # "pick a and b" may be anything


def _roll(count: int, sides: int, more: int = 0) -> str:
    rolls = [random.randint(1, sides) for _ in range(count)]
    if count == 1 and not more:
        return str(rolls[0])
    added = f" {'+' if more > 0 else '-'} {abs(more)}" if more else ""
    return f"{' + '.join(map(str, rolls))}{added} = {sum(rolls) + more}"
