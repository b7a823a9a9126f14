"""Calculator: arithmetic and unit conversion."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field

from llm.intents.question_text import plain, without_courtesies
from llm.skills.calculator.sums import DivisionByZero, ExpressionError, evaluate, format_number
from llm.skills.calculator.units import UnitError, convert_named, measure_in, measures_within
from llm.skills.calculator.words import sentence_in, sum_in
from llm.skills.hint import HintContext, WorkedOut
from llm.tools.toolbox import ToolError, tool

_LOOSE = re.compile(
    r"(?:what(?:'s| is| are| does| do)?|whats|how much (?:is|are|does|do)"
    r"|was (?:ist|sind|macht|gibt)|wie ?viel (?:ist|sind|macht|gibt|ergibt)"
    r"|the (?:answer|result) (?:to|of)) (?:the result of )?"
)
_EXPLICIT = re.compile(
    r"(?:calculate|calc|compute|work out|evaluate|solve|berechne|rechne|how much (?:is|are)"
    r"|wie ?viel (?:ist|sind|macht|ergibt)|sum:|what(?:'s| is) the (?:result|value) of)\s*"
)
_EQUALS = re.compile(r"\s*(?:=|equals?|equal to|ergibt|make|makes)\s*(?:\?|what|was)?\s*$")
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

HINT_CUE = re.compile(  # every sum or conversion contains a number, a sign or one of these words
    r"[\d½⅓⅔¼¾²³√∛×÷·π+*/^%=!(]|\b(?:zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
    r"|\w+teen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|hundred|thousand|million|billion"
    r"|half|e|pi|tau|many|much|far|wie|viele?|wieviele?)\b"
    r"|\ban?\s.{1,60}\s(?:in|to|into|as|equals|expressed)\s",
    re.IGNORECASE,
)


async def hint(question: str, context: HintContext) -> WorkedOut | None:
    """Return the result of a sum or conversion that the question consists of, as a whole answer, or
    else of those that it contains."""
    asked = without_courtesies(question)
    try:
        if whole := _whole_sum(asked) or measure_in(asked, plain(question)):
            return WorkedOut(whole, is_whole=True)
        within = [*measures_within(asked), *_sums_within(asked)]
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


def _whole_sum(asked: str) -> str | None:
    """Return the answer to a question that consists of a sum, None for any other one."""
    if said := sentence_in(asked):
        return said
    if match := _EXPLICIT.match(asked):
        text, is_sure = asked[match.end() :], True
    elif match := _LOOSE.match(asked):
        text, is_sure = asked[match.end() :], False
    else:
        text, is_sure = asked, _EQUALS.search(asked) is not None
    text = _EQUALS.sub("", text)
    if _NO_SUM.fullmatch(text) or (not is_sure and _is_name(text, asked_for=match is not None)):
        return None
    if said := sentence_in(text):
        return said
    found = sum_in(text)
    return str(found) if found else None


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
    found = []
    for match in _WITHIN.finditer(asked):
        text = match["sum"].strip()
        if not _NO_SUM.fullmatch(text) and not _is_name(text, asked_for=False):
            result = sum_in(text)
            if result:
                found.append(str(result))
    return found
