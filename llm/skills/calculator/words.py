"""Arithmetic in words: "seven times eight", "half of 90", "the average of 3, 4 and 5"."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

from llm.reading.numbers import numbers_in_digits
from llm.reading.slots import words_beside_frame
from llm.reading.vocabulary import plain_word
from llm.skills.calculator.sums import (
    DivisionByZero,
    ExpressionError,
    Number,
    equals,
    evaluate,
    format_number,
)

_STORED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def _words(name: str) -> frozenset[str]:
    listed = _STORED[name].split()
    return frozenset([*listed, *map(plain_word, listed)])


_ASKING, EXPLICIT, CONJUNCTIONS, NAMES, MANY = map(
    _words, ("asking", "explicit", "conjunctions", "names", "many")
)
"""Words around a sum or a measure, as `words.toml` explains."""

_SYMBOLS: Mapping[str, str] = {
    phrase: symbol
    for symbol, phrases in _STORED["symbols"].items()
    for phrase in phrases.split(", ")
}
_PHRASE = re.compile(rf"\b(?:{'|'.join(sorted(_SYMBOLS, key=len, reverse=True))})\b(?!\()")
_PLACES = re.compile(r" ?\{[01]\} ?")
_FORMS: Mapping[tuple[str, ...], str] = {  # by the words before and between their operands
    tuple(_PLACES.split(form)[:2]): meaning for form, meaning in _STORED["forms"].items()
}
_FIRST, _BETWEEN = (
    "|".join(map(re.escape, sorted(filter(None, words), key=len, reverse=True)))
    for words in zip(*_FORMS, strict=True)
)
_FORM = re.compile(rf"(?:({_FIRST}) )?([^,;]{{1,60}}?)(?: ({_BETWEEN}) ([^,;]{{1,60}}))?")
_ORDINAL_POWER = re.compile(r"\bto (\d{1,3})(?:st|nd|rd|th) power\b")
_LISTS: Mapping[str, str] = _STORED["lists"]
_LIST = re.compile(rf"({'|'.join(_LISTS)}) (?:of|between):? (.+)")
_SEPARATOR = re.compile(r" ?; ?|, ?and | and |, |,(?!\d{3}(?!\d))| ")
_MAX_VALUES = 50


def is_asking(word: str) -> bool:
    """Return whether a word only says that a result is wanted, or is a courtesy."""
    bare = word.strip(",:;.!")
    return (
        word in _ASKING or bare in _ASKING or (bare.isalpha() and not words_beside_frame(bare, ""))
    )


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
    text = " ".join(_ORDINAL_POWER.sub(r"^ \1", text).split())
    return text.replace(", - ", " - ").replace(", + ", " + ")  # "500, less 18"


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
