"""Random numbers, dice, coins and choices, because a model always picks the same "random" one."""

from __future__ import annotations

import random
import re
from typing import Annotated

from pydantic import Field

from llm.reading.numbers import numbers_in_digits
from llm.reading.reading import strip_frame, words_beside_frame
from llm.reading.vocabulary import Sentence
from llm.skills.hint import HintContext, WorkedOut
from llm.tools.toolbox import tool

_KINDS = frozenset({"dice"})
_DICE = re.compile(r"\b(\d{0,2})[dw](\d{1,4}\b|%)(?: ?([+-]) ?(\d{1,4}))?", re.IGNORECASE)
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
    written = strip_frame(question, "")
    if choice := _CHOICE.fullmatch(written):
        split = _SPLIT.split(choice["things"])
        things = tuple(filter(None, (each.strip(" '\"") for each in split)))
        # "pick a and b" may be anything.
        is_marked = choice["marked"] or re.search(r"\bo(?:r|der)\b", choice["things"])
        is_list = 2 <= len(things) <= _MAX_CHOICES and max(map(len, things)) <= _MAX_CHOICE_LENGTH
        if is_marked and is_list:
            said = f"Picked at random: {random.choice(things)}."
            return WorkedOut(said, is_whole=True, free=things)
    asked = numbers_in_digits(written)
    if match := _DICE.search(asked):
        sides, more = int(match[2].replace("%", "100")), int(f"{match[3] or ''}{match[4] or 0}")
        said, rest = _roll_dice(int(match[1] or 1), sides, more), asked.replace(match[0], "", 1)
    else:
        said, rest = _draw(Sentence(asked))
    # Surely a matter of chance: then it may say more around it, such as what the coin is for. But
    # another number matters: "2d20, keep the higher 1".
    is_sure = context.reading is not None and context.reading.is_one_of(_KINDS)
    others = words_beside_frame(rest, "dice")
    if not said or (others and not is_sure) or re.search(r"\d", rest):
        return None
    return WorkedOut(said, is_whole=True, free=(rest if others else "",))


@tool
async def roll_dice(
    count: Annotated[int, Field(ge=1, le=99)] = 1, sides: Annotated[int, Field(ge=2, le=9999)] = 6
) -> str:
    """Roll dice; one with two sides is a coin."""
    return _roll(count, sides)


def _draw(sentence: Sentence) -> tuple[str, str]:
    """Return what the first words for chance ask for, "3 coins", "20-sided die" or "random number
    from 1 to 6", "" for nothing, and the text around them."""
    named = ((at, found) for at in range(len(sentence)) if (found := sentence.phrase("chance", at)))
    start, (what, end) = next(named, (0, ("", 0)))
    numbers = {at: int(word) for at, word in enumerate(sentence.words) if word.isdecimal()}
    for at in numbers:
        if sentence.word(at - 1) == "-" and sentence.is_glued(at) and not sentence.is_glued(at - 1):
            numbers[at] *= -1
    said, sides = "", {"coin": 2, "percentile": 100}.get(what, 6)
    if what == "random":
        low, high = sorted(numbers.values()) if len(numbers) == 2 else (1, 100)
        if len(numbers) == 2 and "of" not in sentence.words:  # not "6 out of 49"
            start, end = min(start, *numbers), max(end, max(numbers) + 1)
        elif end == start + 1 or words_beside_frame(sentence.between(end, len(sentence)), "dice"):
            return "", ""  # "number" alone, or "random number below fifty"
        said = f"Picked at random from {low} to {high}: {random.randint(low, high)}."
    elif what:
        if sentence.word(start) == "sided":
            start -= 2 if sentence.word(start - 1) == "-" else 1
            sides = numbers.get(start, 0)
        count = numbers.get(start - 1, 2 if what == "dice" else 1)
        start -= start - 1 in numbers
        if what == "coin":
            faces = [random.choice(["heads", "tails"]) for _ in range(count)]
            said = f"The coins show {', '.join(faces)}: heads {faces.count('heads')} times."
            if len(faces) < 2:
                said = f"The coin shows {faces[0]}." if faces else ""
        else:
            said = _roll_dice(count, sides)
    return said, f"{sentence.between(0, start)} {sentence.between(end, len(sentence))}"


def _roll_dice(count: int, sides: int, more: int = 0) -> str:
    name = f"{count}d{sides}{f'{more:+}' if more else ''}"
    is_fair = 1 <= count <= 99 and 2 <= sides <= 9999
    return f"Rolled {name}: {_roll(count, sides, more)}." if is_fair else ""


def _roll(count: int, sides: int, more: int = 0) -> str:
    rolls = [random.randint(1, sides) for _ in range(count)]
    if count == 1 and not more:
        return str(rolls[0])
    added = f" {'+' if more > 0 else '-'} {abs(more)}" if more else ""
    return f"{' + '.join(map(str, rolls))}{added} = {sum(rolls) + more}"
