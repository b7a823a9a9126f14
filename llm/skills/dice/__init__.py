"""Chance: a model that is asked for a random number always says the same one."""

from __future__ import annotations

import random
import re
from typing import Annotated

from pydantic import Field

from llm.tools import tool

_DICE = re.compile(r"\b(\d{0,2})d(\d{1,4})\b", re.IGNORECASE)
_ROLL = re.compile(r"\broll\b.*?(?:\bdi[ec]e?\b|\b\d{0,2}d\d)", re.IGNORECASE)
_COIN = re.compile(r"\b(?:flip|toss)\b.*\bcoin\b", re.IGNORECASE)
_CHOICE = re.compile(r"\b(?:choose between|pick one of|choose one of)\s+(.+)", re.IGNORECASE)


async def hint(question: str) -> str | None:
    """What was rolled, flipped or picked, where the question asks for that."""
    if _COIN.search(question):
        return f"the coin shows {random.choice(['heads', 'tails'])}"
    if choice := _CHOICE.search(question):
        things = [thing.strip(" .?!") for thing in re.split(r",|\bor\b|\band\b", choice[1])]
        things = [thing for thing in things if thing]
        return f"picked at random: {random.choice(things)}" if len(things) > 1 else None
    if _ROLL.search(question):
        dice = _DICE.search(question)
        count, sides = (int(dice[1] or 1), int(dice[2])) if dice else (1, 6)
        return f"rolled {count}d{sides}: {_rolled(count, sides)}" if count and sides else None
    return None


@tool
async def roll_dice(
    count: Annotated[int, Field(ge=1, le=99)] = 1,
    sides: Annotated[int, Field(ge=2, le=9999)] = 6,
) -> str:
    """Roll dice; one with two sides is a coin."""
    return _rolled(count, sides)


def _rolled(count: int, sides: int) -> str:
    rolls = [random.randint(1, sides) for _ in range(count)]
    if count == 1:
        return str(rolls[0])
    return f"{' + '.join(map(str, rolls))} = {sum(rolls)}"
