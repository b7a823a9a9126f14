"""Arithmetic in words: "seven times eight", "half of 90", "the average of 3, 4 and 5"."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

from llm.reading.numbers import numbers_in_digits
from llm.skills.calculator.sums import (
    DivisionByZero,
    ExpressionError,
    Number,
    equals,
    evaluate,
    format_number,
)

# By symbol, the phrases for it, without "the". The longest one that matches is replaced.
_PHRASES: Mapping[str, str] = {
    "^": "to power of, raised to power of, raised to, hoch",
    "*": "multiplied by, multiplied with, times, mal",
    "/": "divided by, over, geteilt durch, durch",
    "+": "plus, added to",
    "-": "minus, take away, negative",
    "mod": "modulo, modulus",
    "%": "percent, percentage, per cent, pct, prozent",
    "of": "von",
    "sqrt": "square root of, sqrt of, wurzel aus, quadratwurzel aus, quadratwurzel von, wurzel von",
    "cbrt": "cube root of",
    "²": "squared, zum quadrat",
    "³": "cubed",
    "!": "factorial",
    "½ of": "half of, 1 half of, a half of, half, die hälfte von, hälfte von",
    "⅓ of": "third of, 1 third of, a third of",
    "⅔ of": "2 thirds of",
    "¼ of": "quarter of, 1 quarter of, a quarter of, fourth of, 1 fourth of, a fourth of",
    "¾ of": "3 quarters of",
    "2 *": "double, twice, das doppelte von",
    "3 *": "triple, thrice",
}
_SYMBOLS = {
    phrase: symbol for symbol, phrases in _PHRASES.items() for phrase in phrases.split(", ")
}
_PHRASE = re.compile(rf"\b(?:{'|'.join(sorted(_SYMBOLS, key=len, reverse=True))})\b(?!\()")
# What such a request means, by its first words and those between its two operands.
_FORMS: Mapping[tuple[str, str], str] = {
    ("add", "and"): "({0}) + ({1})",
    ("add", "to"): "({1}) + ({0})",
    ("subtract", "from"): "({1}) - ({0})",
    ("take", "from"): "({1}) - ({0})",
    ("", "subtracted from"): "({1}) - ({0})",
    ("multiply", "by"): "({0}) * ({1})",
    ("multiply", "and"): "({0}) * ({1})",
    ("multiply", "with"): "({0}) * ({1})",
    ("divide", "by"): "({0}) / ({1})",
    ("quotient of", "and"): "({0}) / ({1})",
    ("remainder when", "is /"): "({0}) mod ({1})",
    ("remainder of", "/"): "({0}) mod ({1})",
    ("", "% off"): "({1}) - ({0})%",
    ("", "% off of"): "({1}) - ({0})%",
    ("", "% tip on"): "({0})% of ({1})",
    ("", "% tip for"): "({0})% of ({1})",
    ("increase", "by"): "({0}) + ({1})",
    ("raise", "by"): "({0}) + ({1})",
    ("decrease", "by"): "({0}) - ({1})",
    ("reduce", "by"): "({0}) - ({1})",
    ("square of", ""): "({0})²",
    ("cube of", ""): "({0})³",
    ("! of", ""): "({0})!",
    ("% of", "is"): "{1} is % of {0}",
    ("", "is what % of"): "{0} is % of {1}",
    ("", "is a % of"): "{0} is % of {1}",
    ("% is", "of"): "{0} is % of {1}",
}
_FIRST, _BETWEEN = (
    "|".join(map(re.escape, sorted(filter(None, words), key=len, reverse=True)))
    for words in zip(*_FORMS, strict=True)
)
_FORM = re.compile(rf"(?:({_FIRST}) )?([^,;]{{1,60}}?)(?: ({_BETWEEN}) ([^,;]{{1,60}}))?")
_ORDINAL_POWER = re.compile(r"\bto (\d{1,3})(?:st|nd|rd|th) power\b")
_LISTS: Mapping[str, str] = {
    **{name: name for name in ("average", "median", "gcd", "lcm", "max", "min")},
    "sum": "+",
    "total": "+",
    "product": "*",
    "difference": "-",
    "mean": "average",
    "maximum": "max",
    "largest": "max",
    "minimum": "min",
    "smallest": "min",
    "greatest common divisor": "gcd",
    "least common multiple": "lcm",
}
_LIST = re.compile(rf"({'|'.join(_LISTS)}) (?:of|between):? (.+)")
_SEPARATOR = re.compile(r" ?; ?|, ?and | and |, |,(?!\d{3}(?!\d))| ")
_MAX_VALUES = 50

_ASKING = """
    = ? what what's whats how is are does do in to into as of per up there have has many much far
    long tall high heavy big hot cold warm fast large make makes equal equals contain contained
    expressed convert converted change turn calculate calc compute evaluate solve work out
    sum: result value answer was wie viel viele wieviel wieviele ist sind hat haben um
    umgerechnet rechne berechne macht gibt ergibt"""
ASKING = frozenset(_ASKING.split())
"""Words around a sum or a measure which only say that its result is wanted."""


def answer_in(text: str) -> str | None:
    """Return the answer to a text in the form of `symbols_of` that is a sum; None if it is not one.

    A number alone is no sum. Raises DivisionByZero.
    """
    if match := _LIST.fullmatch(text):
        return _list_answer(match[1], match[2])
    try:
        match = _FORM.fullmatch(text)
        if match and (form := _FORMS.get((match[1] or "", match[3] or ""))):
            text = form.format(match[2], match[4])
        part, is_share, whole = text.partition(" is % of ")
        found = evaluate(f"({part}) / ({whole}) * 100" if is_share else text)
    except DivisionByZero:
        raise
    except ExpressionError:
        return None
    if is_share:
        return f"{part} is {_about(found.value)}% of {whole}."
    return str(found) if found.is_operation else None


def symbols_of(text: str) -> str:
    """Return a text in lower case with its words for numbers and operations replaced by digits and
    symbols, without "the"."""
    words = numbers_in_digits(text.lower()).replace("%", " % ").split()
    text = " ".join(word for word in words if word != "the")
    text = _PHRASE.sub(lambda match: f" {_SYMBOLS[match[0]]} ", text)
    return " ".join(_ORDINAL_POWER.sub(r"^ \1", text).split())


def number_in(text: str) -> Fraction | None:
    """Parse a number in digits such as "2.5", "1,000" or "½"; None for other text."""
    try:
        found = evaluate(text)
    except ExpressionError:
        return None
    is_number = isinstance(found.value, Fraction) and not found.is_operation
    return Fraction(found.value) if is_number else None


def _list_answer(name: str, listed: str) -> str | None:
    """Return the answer about a list of numbers, None if it is ambiguous: "1,200,300" may be one
    number or three."""
    parts = [part for part in _SEPARATOR.split(listed) if part]
    numbers = [number for part in parts if (number := number_in(part)) is not None]
    is_separated = any(sign in listed for sign in (", ", ";", " and "))
    is_grouped = not is_separated and any("," in part for part in parts)
    what = _LISTS[name]
    most = 2 if what == "-" else _MAX_VALUES
    if is_grouped or len(numbers) != len(parts) or not 2 <= len(numbers) <= most:
        return None
    told = [format_number(number) for number in numbers]
    text = what.join(told) if what in "+*-" else f"{what}({', '.join(told)})"
    try:
        value = evaluate(f"abs({text})" if what == "-" else text).value
    except ExpressionError:
        return None
    return f"The {name} of {', '.join(told[:-1])} and {told[-1]} is {_about(value)}."


def _about(value: Number) -> str:
    return f"{'' if equals(value).startswith('=') else 'about '}{format_number(value)}"
