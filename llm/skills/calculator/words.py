"""Arithmetic in words: "seven times eight", "half of 90", "the average of 3, 4 and 5"."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Sequence
from fractions import Fraction
from math import prod

from llm.reading.numbers import numbers_in_digits
from llm.skills.calculator.sums import (
    DivisionByZero,
    ExpressionError,
    Number,
    Sum,
    equals,
    evaluate,
    format_number,
)

# The order matters: a phrase comes before the shorter ones that it contains.
_SYMBOLS: Sequence[tuple[str, str]] = (
    (r"\b(?:raised )?to the power of\b|\braised to\b|\bhoch\b", " ^ "),
    (r"\b(?:multiplied (?:by|with)|times|mal)\b", " * "),
    (r"\b(?:divided by|over|geteilt durch|durch)\b", " / "),
    (r"\b(?:plus|added to)\b", " + "),
    (r"\b(?:minus|take away)\b", " - "),
    (r"\b(?:modulo|modulus)\b", " mod "),
    (r"\b(?:percent|per cent|pct|prozent)\b", "%"),
    (r"(?<=%) (?:of|von)\b", " of "),
    (r"\b(?:the )?(?:square root|sqrt) of\b|\b(?:die )?(?:quadrat)?wurzel (?:aus|von)\b", " sqrt "),
    (r"\b(?:the )?cube root of\b", " cbrt "),
    (r"\b(?:the )?factorial of (\d+)\b", r"\1!"),
    (r"\b(?:the )?factorial of\b", " factorial "),
    (r"(?<=\d) ?factorial\b", "!"),
    (r"\bsquared\b|\bzum quadrat\b", "²"),
    (r"\bcubed\b", "³"),
    (r"\b(?:1 |a )?half (?:of )?|\b(?:die )?hälfte von\b", " ½ of "),
    (r"\b(?:1 |a )third of\b", " ⅓ of "),
    (r"\b2 thirds of\b", " ⅔ of "),
    (r"\b(?:1 |a )(?:quarter|fourth) of\b", " ¼ of "),
    (r"\b3 quarters of\b", " ¾ of "),
    (r"\b(?:double|twice|das doppelte von)\b", " 2 * "),
    (r"\b(?:triple|thrice)\b", " 3 * "),
    (r"\bnegative (?=\d)", " -"),
    (r"(?<=[\d)])\s*x\s*(?=[\d(-])", " * "),
)
_REPLACED = tuple((re.compile(pattern), symbol) for pattern, symbol in _SYMBOLS)

_N = r"(?P<{}>[^,;]{{1,60}}?)"
_ARITHMETIC: Sequence[tuple[re.Pattern[str], str]] = tuple(
    (re.compile(pattern.format(a=_N.format("a"), b=_N.format("b"))), symbols)
    for pattern, symbols in (
        (r"add {a} (?:and|to|with|plus) {b}", "({a}) + ({b})"),
        (r"(?:subtract|take) {a} from {b}", "({b}) - ({a})"),
        (r"{a} subtracted from {b}", "({b}) - ({a})"),
        (r"multiply {a} (?:by|and|with|times) {b}", "({a}) * ({b})"),
        (r"divide {a} by {b}", "({a}) / ({b})"),
        (r"(?:the )?quotient of {a} and {b}", "({a}) / ({b})"),
        (
            r"(?:the )?remainder (?:of|when) {a} (?:is )?(?:divided by|/|over) {b}",
            "({a}) mod ({b})",
        ),
        (r"{a}(?:%| percent) off (?:of )?{b}", "({b}) - ({a})%"),
        (r"(?:a )?{a}(?:%| percent) tip (?:on|of|for) {b}", "{a}% of ({b})"),
        (r"what do {a} and {b} (?:make|add up to)", "({a}) + ({b})"),
        (r"(?:increase|raise) {a} by {b}(?:%| percent)", "({a}) + ({b})%"),
        (r"(?:decrease|reduce) {a} by {b}(?:%| percent)", "({a}) - ({b})%"),
        (r"(?:the )?square of {a}", "({a})²"),
        (r"(?:the )?cube of {a}", "({a})³"),
        (r"{a} to the (?P<power>\w{{1,3}}(?:st|nd|rd|th)) power", "({a}) ^ {power}"),
    )
)
_PERCENTAGE = tuple(
    re.compile(pattern)
    for pattern in (
        r"what (?:percent|percentage|%) of (?P<whole>[\d.,]+) is (?P<part>[\d.,]+)",
        r"(?P<part>[\d.,]+) (?:is|as) (?:what|a) (?:percent|percentage|%) of (?P<whole>[\d.,]+)",
        r"what (?:percent|percentage|%) (?:is )?(?P<part>[\d.,]+) (?:is )?of (?P<whole>[\d.,]+)",
    )
)
_OF_LIST = re.compile(
    r"(?:the )?(?P<name>sum|total|difference|product|average|mean|median"
    r"|maximum|max|largest|minimum|min|smallest|gcd|greatest common divisor|lcm"
    r"|least common multiple) (?:of|between):? (?P<values>.+)"
)
_LISTS: dict[str, Callable[[Sequence[Fraction]], Number]] = {
    "sum": lambda values: sum(values, Fraction(0)),
    "total": lambda values: sum(values, Fraction(0)),
    "product": prod,
    "average": statistics.mean,
    "mean": statistics.mean,
    "difference": lambda values: abs(values[0] - values[1]),
    "median": statistics.median,
    "maximum": max,
    "max": max,
    "largest": max,
    "minimum": min,
    "min": min,
    "smallest": min,
}
_MAX_VALUES = 50


def sum_in(text: str) -> Sum | None:
    """Evaluate a text that is a sum in symbols, words or both; None if it is not one.

    `text` is in lower case, without courtesies. A number alone is not a sum. Raises DivisionByZero.
    """
    try:
        for pattern, symbols in _ARITHMETIC:
            if match := pattern.fullmatch(text):
                return evaluate(_without_needless_brackets(_fill(symbols, match)))
        found = evaluate(symbols_of(text))
    except DivisionByZero:
        raise
    except ExpressionError:
        return None
    return found if found.operations else None


def sentence_in(text: str) -> str | None:
    """Return the answer to a question about a list of numbers or a percentage, as a sentence; None
    for any other text."""
    for pattern in _PERCENTAGE:
        if match := pattern.fullmatch(text):
            part, whole = _value(match["part"]), _value(match["whole"])
            if part is None or not whole:
                return None
            share = part / whole * 100
            about = "" if equals(share).startswith("=") else "about "
            return f"{match['part']} is {about}{format_number(share)}% of {match['whole']}."
    match = _OF_LIST.fullmatch(text)
    return _list_sentence(match["name"], match["values"]) if match else None


def symbols_of(text: str) -> str:
    """Return a sum with its words replaced by symbols and digits."""
    text = numbers_in_digits(text)
    for pattern, symbol in _REPLACED:
        text = pattern.sub(symbol, text)
    return re.sub(r"\bthe\b", " ", text)


def number_in(text: str) -> Fraction | None:
    """Parse a number in digits or words ("2.5", "twenty-one", "half a"); None for other text."""
    text = text.strip()
    if text in ("a", "an", "one"):
        return Fraction(1)
    if text in ("half a", "half an", "½"):
        return Fraction(1, 2)
    return _value(text)


def _value(text: str) -> Fraction | None:
    try:
        found = evaluate(symbols_of(text.strip().rstrip(".,")))
    except ExpressionError:
        return None
    is_plain = isinstance(found.value, Fraction) and found.operations == 0
    return Fraction(found.value) if is_plain else None


def _list_sentence(name: str, listed: str) -> str | None:
    """Return the answer about a list of numbers, None if it is ambiguous: "1,200,300" may be one
    number or three."""
    grouped = re.search(r"\d,\d{3}(?!\d)", listed) and not re.search(r",\s|;|\band\b", listed)
    parts = re.split(r"\s*;\s*|,\s*and\s+|\s+and\s+|,\s+|,(?!\d{3}(?!\d))|\s+", listed)
    values = [_value(part) for part in parts if part.strip()]
    numbers = [value for value in values if value is not None]
    most = 2 if name == "difference" else _MAX_VALUES
    if grouped or len(numbers) != len(values) or not 2 <= len(numbers) <= most:
        return None
    if name in _LISTS:
        value = _LISTS[name](numbers)
    else:
        function = "gcd" if name.startswith("g") else "lcm"
        try:
            value = evaluate(f"{function}({', '.join(map(format_number, numbers))})").value
        except ExpressionError:
            return None
    told = [format_number(number) for number in numbers]
    about = "" if equals(value).startswith("=") else "about "
    return f"The {name} of {', '.join(told[:-1])} and {told[-1]} is {about}{format_number(value)}."


def _fill(symbols: str, match: re.Match[str]) -> str:
    groups = {name: symbols_of(text) for name, text in match.groupdict().items() if text}
    if "power" in groups:
        groups["power"] = re.sub(r"\D", "", match["power"]) or "?"
    return symbols.format(**groups)


def _without_needless_brackets(symbols: str) -> str:
    """Return a sum without brackets around single numbers."""
    return re.sub(r"(?<![a-z])\(\s*(\d[\d,.]*)\s*\)", r"\1", symbols)
