"""Calculator: arithmetic and unit conversion."""

from __future__ import annotations

import re
from itertools import product, takewhile
from typing import Annotated

from pydantic import Field

from llm.reading.question_text import strip_courtesies
from llm.skills.calculator.sums import DivisionByZero, ExpressionError, evaluate, format_number
from llm.skills.calculator.units import (
    UnitError,
    conversion_in,
    convert_named,
    unit_of,
)
from llm.skills.calculator.words import ASKING, answer_in, symbols_of
from llm.skills.hint import HintContext, WorkedOut
from llm.tools.toolbox import ToolError, tool

_KINDS = frozenset({"calculation"})
# Words before a sum which leave no doubt that its result is wanted.
_EXPLICIT = frozenset(
    (
        *("calculate", "calc", "compute", "evaluate", "solve", "much", "sum:", "result", "value"),
        *("berechne", "rechne", "viel", "wieviel", "work", "out", "answer"),
    )
)
_CONJUNCTIONS = frozenset(("and", "or", "then", "und", "oder"))
_MOST_BEFORE, _MOST_AFTER = 6, 4  # other words around a sum
# Expressions that are hardly ever a sum: "24/7" (always), dates, scores, ranges, radio codes.
_TIGHT = re.compile(r"(\d+(?:\.\d+)?)([-/x])(\d+(?:\.\d+)?)")
_NAMES = frozenset(
    (
        *("24/7", "9/11", "7/11", "50/50", "80/20", "60/40", "20/20", "4/20", "7/7", "1/6"),
        *("10-4", "5-0", "6/7", "2x4", "4x4"),
    )
)
_LOOSE = re.compile(r"[\d(]\S* \S+ \S")  # a sum with spaces, which few names have
_NO_SUM = re.compile(r"\d+([-/.:])\d+\1\d+(?:[-/.:]\d+)*")


async def hint(question: str, context: HintContext) -> WorkedOut | None:
    """Return the result of a sum or conversion that the question consists of, or else of the sum
    that it contains: a whole answer if it surely asks for a calculation only."""
    words = symbols_of(strip_courtesies(question)).split()
    is_sure = context.reading is not None and context.reading.is_one_of(_KINDS)
    first, last = 0, len(words)
    while first < last and words[first] in ASKING:
        first += 1
    while first < last and words[last - 1] in ASKING:
        last -= 1
    is_explicit = is_sure or "=" in "".join(words)[-2:] or not _EXPLICIT.isdisjoint(words[:first])
    try:
        text = " ".join(words[first:last])
        is_name = not is_explicit and _is_name(text, asked_for=first > 0)
        if not is_name and (said := answer_in(text)):
            return WorkedOut(said, is_whole=True)
        if said := conversion_in(strip_courtesies(question), is_sure=is_sure):
            return WorkedOut(said, is_whole=True)
        before = takewhile(_is_needless, words[first : first + _MOST_BEFORE])
        after = takewhile(_is_needless, reversed(words[max(first, last - _MOST_AFTER) : last]))
        firsts = range(first, first + len(list(before)) + 1)
        lasts = range(last, last - len(list(after)) - 1, -1)
        for begin, end in product(firsts, lasts):
            text = " ".join(words[begin:end])
            if (is_sure or _LOOSE.match(text)) and (said := answer_in(text)):
                others = {*words[first:begin], *words[end:last]}
                return WorkedOut(said, is_whole=is_sure and others.isdisjoint(_CONJUNCTIONS))
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
    try:
        return f"{float(convert_named(value, unit, to)):.6g} {to}"
    except UnitError as error:
        raise ToolError(str(error)) from error


def _is_needless(word: str) -> bool:
    """Return whether a word beside a sum is no part of it: no number, sign or unit."""
    word = word.strip(",.:;?")
    return word.isalpha() and unit_of(word) is None


def _is_name(text: str, *, asked_for: bool) -> bool:
    """Return whether `text`, in the form of a sum, is more likely a date, score, range, screen
    resolution, phone number or name. `asked_for`: the question asks "what is ..."."""
    match = _TIGHT.fullmatch(text)
    if not match:
        return _NO_SUM.fullmatch(text) is not None
    if not asked_for or text in _NAMES:
        return True
    one, sign, other = float(match[1]), match[2], float(match[3])
    if sign == "x":
        return min(one, other) >= 240  # a resolution
    years = 1000 <= one <= other <= 2100
    return sign == "-" and (years or (one >= 100 and other >= 1000))  # a phone number
