"""Calculator: arithmetic and unit conversion, in symbols and in words: "half of 90"."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product, takewhile
from pathlib import Path
from typing import Annotated

from pydantic import Field

from llm.reading.numbers import count_at, number_at, numbers_in_digits
from llm.reading.reading import words_beside_frame
from llm.reading.vocabulary import Sentence, plain_word
from llm.skills.calculator.sums import (
    DivisionByZero,
    ExpressionError,
    Number,
    equals,
    evaluate,
    format_number,
)
from llm.skills.hint import HintContext, WorkedOut
from llm.tools.toolbox import ToolError, tool

MAX_QUESTION_LENGTH = 400
"""The length in characters up to which a question is matched by skills."""

_END = re.compile(r"(?:[\s?.,;]|(?<!\d)!)+$")  # "5!" is a sum
_QUOTES = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "„": '"', "−": "-", "–": "-"})
_KINDS = frozenset({"calculation"})
_MOST_BEFORE, _MOST_AFTER = 6, 4  # other words around a sum
# Dates, scores, ranges and names such as "24/7" or "10-4" are hardly ever sums; "what is 17/3" is.
_NAME = re.compile(r"\d[\d.]*(?:[-/x.:]\d[\d.]*)+")
_DIVISION = re.compile(r"\d+/\d+")
_LOOSE = re.compile(r"[\d(]\S* \S+ \S")  # a sum with spaces, which few names have

_STORED = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))
_ASKING, _LEADING, _EXPLICIT, _CONJUNCTIONS, _NAMES, _MANY, _EACH = (
    frozenset([*(listed := _STORED[name].split()), *map(plain_word, listed)])
    for name in ("asking", "leading", "explicit", "conjunctions", "names", "many", "each")
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
_SHARE = re.compile(r"(\S+) ?(?:out of|of|/) ?(\S+) (?:as|in|en|als|como) (?:an? )?%")
_ORDINAL_POWER = re.compile(r"\bto (\d{1,3})(?:st|nd|rd|th) power\b")
_LISTS: Mapping[str, str] = _STORED["lists"]
_LIST = re.compile(rf"({'|'.join(_LISTS)}) (?:of|between):? (.+)")
_SEPARATOR = re.compile(r" ?; ?|, ?and | and |, |,(?!\d{3}(?!\d))| ")
_MAX_VALUES = 50


def _is_asking(word: str) -> bool:
    """Return whether a word only says that a result is wanted, or is a courtesy."""
    bare = word.strip(",:;.!")
    return (
        word in _ASKING or bare in _ASKING or (bare.isalpha() and not words_beside_frame(bare, ""))
    )


def _answer_in(text: str) -> str | None:
    """Return the answer to a text in digits and symbols that is a sum; None if it is none, such as
    a number alone. Raises DivisionByZero."""
    if match := _LIST.fullmatch(text):
        name, listed = match.groups()
        parts = [part for part in _SEPARATOR.split(listed) if part]
        numbers = [number for part in parts if (number := _number_in(part)) is not None]
        # "1,200,300" may be one number or three.
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
    try:
        if share := _SHARE.fullmatch(text):
            text = f"{share[1]} is % of {share[2]}"
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


def _answer_about_things(words: Sequence[str]) -> str | None:
    """Return the answer to a sum of two numbers among other words, such as "12 singers times 8.50"
    or "14 planks, each of 2.4 m"; None if there is more to it."""
    numbers: list[str] = []
    signs = ["*"] if any(word.strip(",:;") in _EACH for word in words) else []
    units: set[Unit] = set()
    for word in words:
        bare = word.strip(",:;£€$")
        if _number_in(bare) is not None:
            numbers.append(bare)
        elif bare in ("+", "-", "*", "/") and len(numbers) == 1:
            signs.append(bare)
        elif not _is_asking(bare):
            if bare and not bare.isalpha():
                return None
            units.update(filter(None, [unit_of(bare)]))
    if len(numbers) != 2 or len(signs) != 1 or len(units) > 1:
        return None
    return _answer_in(f" {signs[0]} ".join(numbers))


def _number_in(text: str) -> Fraction | None:
    """Parse a number in digits such as "2.5", "1,000" or "½"; None for other text."""
    try:
        found = evaluate(text)
    except ExpressionError:
        return None
    is_number = isinstance(found.value, Fraction) and not found.is_operation
    return Fraction(found.value) if is_number else None


def _about(value: Number) -> str:
    if equals(value).startswith("="):
        return format_number(value)
    inexact = float(value)
    return f"about {inexact:.2f}" if abs(inexact) >= 1 else f"about {inexact:.3g}"


class UnitError(ValueError):
    """A unit is unknown, or the conversion impossible."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit: the quantity it measures, its factor to the base unit, its display name, that of one,
    and where a scale of temperature has its zero, in the base unit."""

    measures: str
    factor: Fraction
    shown: str
    singular: str
    zero: Fraction


Measure = tuple[Fraction | None, Unit]


def _read_tables() -> Iterator[tuple[str, Unit]]:
    tables = tomllib.loads(Path(__file__).with_name("units.toml").read_text(encoding="utf-8"))
    for measures, table in tables.items():
        for size, listed in table.items():
            names = listed.split(", ")
            factor, _, zero = size.partition("+")
            above, _, below = factor.partition("/")
            singular = names[1].replace("us ", "US ") if names[0].endswith("s") else names[0]
            size_of_one = Fraction(above) / Fraction(below or 1)
            unit = Unit(measures, size_of_one, names[0], singular, Fraction(zero or 0))
            for name in names:
                yield name, unit
                yield name.lower(), unit


_UNITS = dict(_read_tables())
_INCH = _UNITS["in"]


def unit_of(name: str) -> Unit | None:
    """Return the unit with a name in any usual spelling, None if it is unknown."""
    name = name.rstrip(".")
    plain = name.lower().replace("metric tonnes", "metric ton").replace("sq. ", "sq ")
    degrees = plain.removeprefix("°").strip()
    for word in ("degrees ", "degree ", "deg ", "grad "):
        degrees = degrees.removeprefix(word).removeprefix("°")
    unit = _UNITS.get(degrees)
    if unit and unit.measures == "temperature":
        return unit
    spellings = (name, plain, plain.removesuffix("s"), plain.removesuffix("es"))
    return next((_UNITS[each] for each in spellings if each in _UNITS), None)


def convert(value: Fraction, unit: Unit, to: Unit) -> Fraction:
    """Convert a value from one unit to another. Raises UnitError."""
    if unit.measures != to.measures:
        raise UnitError(f"{unit.shown} cannot be converted to {to.shown}")
    base = value * unit.factor + unit.zero
    if unit.measures == "temperature" and base < 0:
        raise UnitError("nothing is colder than 0 K")
    return (base - to.zero) / to.factor


_MAX_OTHERS = 2  # more words that a question may have which is surely a calculation
_MOST_TOKENS = 5  # of a unit's name
_GROUPS = re.compile(r"(?<=\d),(?=\d{3}\b)")  # "1,000,000"


def conversion_in(asked: str, *, is_sure: bool = False) -> str | None:
    """Return the answer to a question that only asks to convert a measure, None for any other one.

    `asked` is in its original case, which distinguishes Mb from MB. With
    `is_sure` the question asks for a calculation, and so may have a few words more.
    """
    sentence = Sentence(_GROUPS.sub("", asked))
    found, shown = _measures(sentence, is_sure), ""
    if len(found) == 3 and _is_part(found[1], found[0]):  # "5 ft 3 in", "7 lb 4 oz"
        many, few = found[0][0] or Fraction(0), found[1][0] or Fraction(0)
        large, small = found[0][1], found[1][1]
        shown = f"{_spell(many, large)} {_spell(few, small)}"
        found = [(convert(many, large, small) + few, small), found[2]]
    if len(found) != 2:
        return None
    (first, unit), (second, other) = found
    if first is not None:
        return _sentence(first, unit, other, shown) if second is None else None
    asks = is_sure or not _MANY.isdisjoint(sentence.words)
    return _sentence(second or Fraction(1), other, unit) if asks else None


def _measures(sentence: Sentence, is_sure: bool) -> list[Measure]:
    """Return the units in a question, each with the number before it; none if unsure."""
    found: list[Measure] = []
    number: Fraction | None = None
    at, others, is_linked = 0, 0, True
    while at < len(sentence):
        word, ends = sentence.word(at), range(min(at + _MOST_TOKENS, len(sentence)), at, -1)
        units = ((u, end) for end in ends if (u := unit_of(sentence.between(at, end))))
        named = next(units, None)
        is_inch = number is not None or (found and at == len(sentence) - 1)
        if named and (not _is_asking(word) or is_inch or named[1] > at + 1):
            unit, at = named
            half = sentence.phrase("and_half", at)
            if half and number is not None:
                number, at = number + Fraction(half[0]), half[1]
            is_part = len(found) == 1 and _is_part((number, unit), found[0])
            if not (is_linked or is_part or unit == _INCH) or unit in (each for _, each in found):
                return []
            found.append((number, unit))
            number, is_linked = None, word == "in"
        elif number is None and (counted := _count_at(sentence, at)):
            number, at = counted
        elif _is_asking(word) or word in ",.;:?!":
            is_linked, at = is_linked or word not in ",.;:?!", at + 1
        elif is_sure and number is None and others < _MAX_OTHERS:
            others, at = others + 1, at + 1
        else:
            return []
    return found if number is None else []


def _is_part(small: Measure, large: Measure) -> bool:
    """Return whether a measure goes on with the units that make up one of another: "7 lb 4 oz"."""
    (few, unit), (many, other) = small, large
    if few is None or many is None or unit.measures != other.measures or unit.zero or other.zero:
        return False
    return few * unit.factor < other.factor


def _count_at(sentence: Sentence, at: int) -> tuple[Fraction, int] | None:
    if sentence.word(at) == "-" and sentence.is_glued(at + 1):
        found = number_at(sentence, at + 1)
        return (-found[0], found[1]) if found else None
    if (number := _number_in(sentence.word(at))) is not None and not sentence.word(at).isdecimal():
        return number, at + 1  # "½", "2.5"
    whole = sentence.between(at, min(at + 3, len(sentence)))
    if re.fullmatch(r"\d{1,4}/[1-9]\d{0,3}", whole):  # "1/8 inch"
        return Fraction(whole), at + 3
    found = count_at(sentence, at)
    is_vague = found and found[0] == 3 and number_at(sentence, at) is None  # "a few"
    return None if is_vague else found


def _sentence(value: Fraction, unit: Unit, to: Unit, shown: str = "") -> str | None:
    """Return a conversion as people write it: "1 mile = 5280 feet"; None if there is none."""
    try:
        result = convert(value, unit, to)
    except UnitError:
        return None
    leap = ""
    if "years" in (unit.shown, to.shown):
        leap = " (366 in a leap year)" if to.shown == "days" and value == 1 else " (of 365 days)"
    sign = "=" if Fraction(_format(result)) == result else "≈"
    return f"{shown or _spell(value, unit)} {sign} {_spell(result, to)}{leap}"


def _spell(number: Fraction, unit: Unit) -> str:
    return f"{_format(number)} {unit.singular if number == 1 else unit.shown}"


def _format(number: Fraction) -> str:
    """Return a number exactly if ten significant digits suffice, else rounded to six."""
    exact = f"{float(number):.10g}"
    return exact if "e" not in exact and Fraction(exact) == number else f"{float(number):.6g}"


async def hint(question: str, context: HintContext) -> WorkedOut | None:
    """Return the result of a sum or conversion that the question consists of, or else of the sum
    that it contains: a whole answer if it surely asks for a calculation only."""
    asked = plain(question)
    lead, _, rest = asked.partition(" ")
    asked = rest if lead.lower().strip(",") in _LEADING else asked
    words = numbers_in_digits(asked.lower()).replace("%", " % ").split()
    text = " ".join(word for word in words if word != "the")
    text = _PHRASE.sub(lambda match: f" {_SYMBOLS[match[0]]} ", text)
    text = " ".join(_ORDINAL_POWER.sub(r"^ \1", text).split())
    words = text.replace(", - ", " - ").replace(", + ", " + ").split()  # "500, less 18"
    is_sure = context.reading is not None and context.reading.is_one_of(_KINDS)
    first, last = 0, len(words)
    while first < last and _is_asking(words[first]):
        first += 1
    while first < last and _is_asking(words[last - 1]):
        last -= 1
    is_explicit = is_sure or "=" in "".join(words)[-2:] or not _EXPLICIT.isdisjoint(words[:first])
    try:
        text = " ".join(words[first:last])
        is_sum = is_explicit or not _NAME.fullmatch(text)
        is_sum |= first > 0 and text not in _NAMES and _DIVISION.fullmatch(text) is not None
        if is_sum and (said := _answer_in(text)):
            return WorkedOut(said, is_whole=True)
        if said := conversion_in(asked, is_sure=is_sure):
            return WorkedOut(said, is_whole=True)
        before = takewhile(_is_needless, words[first : first + _MOST_BEFORE])
        after = takewhile(_is_needless, reversed(words[max(first, last - _MOST_AFTER) : last]))
        firsts = range(first, first + len(list(before)) + 1)
        lasts = range(last, last - len(list(after)) - 1, -1)
        for begin, end in product(firsts, lasts):
            text = " ".join(words[begin:end])
            if (is_sure or _LOOSE.match(text)) and (said := _answer_in(text)):
                others = [*words[first:begin], *words[end:last]]
                is_whole = is_sure and _CONJUNCTIONS.isdisjoint(others)
                return WorkedOut(said, is_whole, free=(" ".join(others).strip(",:;.!"),))
        if is_sure and (said := _answer_about_things(words[first:last])):
            return WorkedOut(said, is_whole=True, free=(" ".join(words[first:last]),))
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


def plain(question: str) -> str:
    """Return a question with plain quotes and blanks and no final punctuation; "" if too long."""
    text = " ".join(question.translate(_QUOTES).split())
    # The length bounds the backtracking of all patterns that the text is matched against.
    return _END.sub("", text) if len(text) <= MAX_QUESTION_LENGTH else ""
