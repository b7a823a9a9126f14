"""Calculator: arithmetic and unit conversion."""

from __future__ import annotations

import re
from itertools import product, takewhile
from typing import Annotated

from pydantic import Field

from llm.intents.question_text import strip_courtesies, without_courtesies
from llm.skills.calculator.sums import DivisionByZero, ExpressionError, evaluate, format_number
from llm.skills.calculator.units import (
    UnitError,
    conversion_in,
    conversions_within,
    convert_named,
)
from llm.skills.calculator.words import answer_in, symbols_of
from llm.skills.hint import HintContext, WorkedOut
from llm.tools.toolbox import ToolError, tool

_KINDS = frozenset({"calculation"})
# Words before and after a sum which say that its result is wanted; the first ones leave no doubt.
_EXPLICIT = frozenset(
    (
        *("calculate", "calc", "compute", "evaluate", "solve", "much", "sum:", "result", "value"),
        *("berechne", "rechne", "viel", "wieviel", "work"),
    )
)
_ASKING = _EXPLICIT | frozenset(
    (
        *("what", "what's", "whats", "is", "are", "does", "do", "how", "was", "ist", "sind"),
        *("macht", "gibt", "ergibt", "wie", "answer", "of", "out"),
    )
)
_EQUALS = frozenset(("=", "equal", "equals", "to", "ergibt", "make", "makes", "is", "what", "?"))
_MOST_BEFORE, _MOST_AFTER = 6, 4  # words around a sum in a question that surely asks for one
# Expressions that are hardly ever a sum: "24/7" (always), dates, scores, ranges, radio codes.
_TIGHT = re.compile(r"(\d+(?:\.\d+)?)([-/x])(\d+(?:\.\d+)?)")
_NAMES = frozenset(
    (
        *("24/7", "9/11", "7/11", "50/50", "80/20", "60/40", "20/20", "4/20", "7/7", "1/6"),
        *("10-4", "5-0", "6/7", "2x4", "4x4"),
    )
)
_NO_SUM = re.compile(r"\d+([-/.:])\d+\1\d+(?:[-/.:]\d+)*")
_WITHIN = re.compile(
    r"(?:\b(?:what is|what's|how much is|calculate|compute|equals)|^is)\s+"
    r"(?P<sum>[\d(][\d.() ]{0,20}(?:(?:\*\*|[-+*/^x×÷]) {0,2}-?[\d.()][\d.() ]{0,20}){1,8})"
    r"(?=$|[?!,;]|\.$|\.\s| ?(?:and|a lot|or|then|the|right|correct|true|enough|much)\b)"
)


async def hint(question: str, context: HintContext) -> WorkedOut | None:
    """Return the result of a sum or conversion that the question consists of, as a whole answer, or
    else of those that it contains."""
    asked = without_courtesies(question)
    is_sure = context.reading is not None and context.reading.is_one_of(_KINDS)
    try:
        whole = _whole_sum(symbols_of(asked).split(), is_sure) or conversion_in(
            strip_courtesies(question), is_sure=is_sure
        )
        if whole:
            return WorkedOut(whole, is_whole=True)
        within = [*conversions_within(asked), *_sums_within(asked)]
    except DivisionByZero as error:
        return WorkedOut(f"{str(error).capitalize()}.", is_whole=True)
    return WorkedOut("\n".join(within[:5])) if within else None


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


def _whole_sum(words: list[str], is_sure: bool) -> str | None:
    """Return the answer to a question that consists of a sum, None for any other one. If it surely
    asks for one, it may have a few words more."""
    first, last = 0, len(words)
    while first < last and words[first] in _ASKING:
        first += 1
    while first < last and words[last - 1] in _EQUALS:
        last -= 1
    if first == last:
        return None
    is_explicit = is_sure or last < len(words) or words[-1][-1] == "="
    is_explicit = is_explicit or not _EXPLICIT.isdisjoint(words[:first])
    text = " ".join(words[first:last])
    if _NO_SUM.fullmatch(text) or (not is_explicit and _is_name(text, asked_for=first > 0)):
        return None
    found = answer_in(text)
    if found or not is_sure:
        return found
    before = takewhile(_is_word, words[first : first + _MOST_BEFORE])
    after = takewhile(_is_word, reversed(words[max(first, last - _MOST_AFTER) : last]))
    firsts = range(first, first + len(list(before)) + 1)
    lasts = range(last, last - len(list(after)) - 1, -1)
    pieces = (" ".join(words[begin:end]) for begin, end in product(firsts, lasts) if begin < end)
    return next(filter(None, map(answer_in, pieces)), None)


def _is_word(text: str) -> bool:
    return text.strip(",.:;?").isalpha()


def _is_name(text: str, *, asked_for: bool) -> bool:
    """Return whether `text`, in the form of a sum, is more likely a date, score, range, screen
    resolution, phone number or name. `asked_for`: the question asks "what is ..."."""
    match = _TIGHT.fullmatch(text)
    if not match:
        return False
    if not asked_for or text in _NAMES:
        return True
    one, sign, other = float(match[1]), match[2], float(match[3])
    if sign == "x":
        return min(one, other) >= 240  # a resolution
    years = 1000 <= one <= other <= 2100
    return sign == "-" and (years or (one >= 100 and other >= 1000))  # a phone number


def _sums_within(asked: str) -> list[str]:
    """Return the sums within a longer question, with their results."""
    texts = [match["sum"].strip() for match in _WITHIN.finditer(asked)]
    sums = [
        answer_in(symbols_of(text))
        for text in texts
        if not _NO_SUM.fullmatch(text) and not _is_name(text, asked_for=False)
    ]
    return list(filter(None, sums))
