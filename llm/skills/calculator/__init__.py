"""Calculator: arithmetic and unit conversion."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from itertools import product, takewhile
from typing import Annotated

from pydantic import Field

from llm.reading.question_text import plain
from llm.skills.calculator.sums import DivisionByZero, ExpressionError, evaluate, format_number
from llm.skills.calculator.units import UnitError, conversion_in, convert, unit_of
from llm.skills.calculator.words import (
    CONJUNCTIONS,
    EXPLICIT,
    NAMES,
    answer_in,
    is_asking,
    symbols_of,
)
from llm.skills.hint import HintContext, WorkedOut
from llm.tools.toolbox import ToolError, tool

_KINDS = frozenset({"calculation"})
_MOST_BEFORE, _MOST_AFTER = 6, 4  # other words around a sum
# Dates, scores, ranges and names such as "24/7" or "10-4" are hardly ever sums; "what is 17/3" is.
_NAME = re.compile(r"\d[\d.]*(?:[-/x.:]\d[\d.]*)+")
_DIVISION = re.compile(r"\d+/\d+")
_LOOSE = re.compile(r"[\d(]\S* \S+ \S")  # a sum with spaces, which few names have


async def hint(question: str, context: HintContext) -> WorkedOut | None:
    """Return the result of a sum or conversion that the question consists of, or else of the sum
    that it contains: a whole answer if it surely asks for a calculation only."""
    asked = plain(question)
    words = symbols_of(asked).split()
    is_sure = context.reading is not None and context.reading.is_one_of(_KINDS)
    first, last = 0, len(words)
    while first < last and is_asking(words[first]):
        first += 1
    while first < last and is_asking(words[last - 1]):
        last -= 1
    is_explicit = is_sure or "=" in "".join(words)[-2:] or not EXPLICIT.isdisjoint(words[:first])
    try:
        text = " ".join(words[first:last])
        is_sum = is_explicit or not _NAME.fullmatch(text)
        is_sum |= first > 0 and text not in NAMES and _DIVISION.fullmatch(text) is not None
        if is_sum and (said := answer_in(text)):
            return WorkedOut(said, is_whole=True)
        if said := conversion_in(asked, is_sure=is_sure):
            return WorkedOut(said, is_whole=True)
        before = takewhile(_is_needless, words[first : first + _MOST_BEFORE])
        after = takewhile(_is_needless, reversed(words[max(first, last - _MOST_AFTER) : last]))
        firsts = range(first, first + len(list(before)) + 1)
        lasts = range(last, last - len(list(after)) - 1, -1)
        for begin, end in product(firsts, lasts):
            text = " ".join(words[begin:end])
            if (is_sure or _LOOSE.match(text)) and (said := answer_in(text)):
                others = [*words[first:begin], *words[end:last]]
                is_whole = is_sure and CONJUNCTIONS.isdisjoint(others)
                return WorkedOut(said, is_whole, free=(" ".join(others).strip(",:;.!"),))
    except DivisionByZero as error:
        return WorkedOut(f"{str(error).capitalize()}.", is_whole=True)
    return None


@tool(reads=True)
async def calculate(
    expression: Annotated[
        str, Field(max_length=200, description='for example "(3 + 4) * sqrt(2) / 10 ** 3"')
    ],
) -> str:
    """Work out a sum."""
    try:
        return format_number(evaluate(expression).value)
    except ExpressionError as error:
        raise ToolError(str(error)) from error


@tool(reads=True)
async def convert_unit(
    value: float,
    unit: Annotated[str, Field(max_length=20, description="for example km, lb, F, GiB")],
    to: Annotated[str, Field(max_length=20, description="the unit that is wanted")],
) -> str:
    """Convert a measure into another unit."""
    one, other = unit_of(unit), unit_of(to)
    try:
        if one and other and math.isfinite(value):
            return f"{float(convert(Fraction(str(value)), one, other)):.6g} {to}"
    except UnitError as error:
        raise ToolError(str(error)) from error
    raise ToolError(f"{unit} cannot be converted to {to}")


def _is_needless(word: str) -> bool:
    """Return whether a word beside a sum is no part of it: no number, sign or unit."""
    word = word.strip(",.:;?")
    return word.isalpha() and unit_of(word) is None
