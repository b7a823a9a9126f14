"""A calculator: sums, and units."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field

from llm.skills.calculator.sums import NoSum, shown, worked_out
from llm.skills.calculator.units import NoUnit, converted
from llm.tools import ToolError, tool

_SUM = re.compile(
    r"(?<![\w.:/-])[\d.(][\d.()\s]*(?:(?:\*\*|[-+*/^%x×÷])\s*-?[\d.()][\d.()\s]*)+(?![\w:.-]*\w)",
    re.IGNORECASE,
)
_NO_SUM = re.compile(r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}|\d+-\d+|24/7")  # a date, a range, "always"
_UNITS = re.compile(
    r"(-?\d+(?:\.\d+)?)\s*(°?[a-z]+)\s+(?:in|to|into|as|=)\s+(?:how many\s+)?(°?[a-z]+)",
    re.IGNORECASE,
)


async def hint(question: str) -> str | None:
    """The sums and units of a question, worked out."""
    measures = (_measure(*match.groups()) for match in _UNITS.finditer(question))
    sums = (_sum(match[0].strip()) for match in _SUM.finditer(question))
    lines = [line for line in (*measures, *sums) if line]
    return "\n".join(lines[:5]) or None


@tool(reads=True)
async def calculate(
    expression: Annotated[
        str, Field(max_length=200, description='for example "(3 + 4) * sqrt(2) / 10 ** 3"')
    ],
) -> str:
    """Work out a sum."""
    try:
        return shown(worked_out(expression))
    except NoSum as error:
        raise ToolError(str(error)) from error


@tool(reads=True)
async def convert_unit(
    value: float,
    unit: Annotated[str, Field(max_length=20, description="for example km, lb, F, GiB")],
    to: Annotated[str, Field(max_length=20, description="the unit that is wanted")],
) -> str:
    """Convert a measure into another unit."""
    try:
        return f"{converted(value, unit, to):.6g} {to}"
    except NoUnit as error:
        raise ToolError(str(error)) from error


def _measure(number: str, unit: str, wanted: str) -> str | None:
    try:
        return f"{number} {unit} = {converted(float(number), unit, wanted):.6g} {wanted}"
    except NoUnit:
        return None


def _sum(text: str) -> str | None:
    """A sum and its result, if it is one."""
    if _NO_SUM.fullmatch(text):
        return None
    try:
        return f"{text} = {shown(worked_out(text))}"
    except NoSum:
        return None
