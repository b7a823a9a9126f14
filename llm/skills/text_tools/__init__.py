"""Letter counts, spelling and number notations, which models get wrong as they read tokens."""

from __future__ import annotations

import base64
import binascii
import codecs
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated

from pydantic import Field

from llm.intents.question_text import plain, without_courtesies
from llm.skills.hint import HintContext, WorkedOut
from llm.tools.toolbox import tool

_ROMAN = (
    *((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L")),
    *((40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")),
)
_MAX_BITS = 128
_MAX_LENGTH = 200  # characters of a text to encode or decode

_QUOTED = r"[\"'](?P<{0}>[^\"]+?)[\"']"
_NAMED = (
    r"(?:the )?(?:word|name|string|text|phrase|sentence|term|letters|wort):? "
    r"[\"']?(?P<{0}>.+?)[\"']?"
)
# The text that a question is about: in quotes or introduced ("the word ..."), else it is ambiguous.
_TEXT = rf"(?:{_QUOTED.format('quoted')}|{_NAMED.format('named')})"
_WORD = r"(?P<word>[^\W\d_][\w'-]*)"
_SAYING = (
    r"(?:what(?:'s| is) |how do you (?:say|write|spell) |say |write |spell |convert |turn |make )?"
)
_LETTERS = re.compile(
    rf"(?:how many|count(?: the| all)?) (?P<what>letters|characters|words|vowels)"
    rf"(?: (?:are|is|does|do|has))?(?: there)?(?: (?:in|of|have|has))?"
    rf"(?:: (?P<after>.+)| (?:{_TEXT}|{_WORD})(?: have| has)?)"
)
_LETTER = re.compile(
    r"(?:how many|count(?: the)?)(?: times does)?(?: the)?(?: letters?)? [\"']?(?P<letter>[^\W\d_])"
    r"(?:'?s|\"|')?(?: (?:are|is|appears?|occurs?))?(?: there)? in"
    rf" (?:{_TEXT}|{_WORD})"
)
_BACKWARDS = re.compile(
    rf"(?:reverse:? {_TEXT}"
    rf"|{_SAYING}[\"']?(?P<back>[^\"':]+?)[\"']? (?:spelled |spelt |written )?"
    r"(?:backwards?|in reverse|rückwärts))"
)
_CASE = re.compile(
    rf"(?:(?P<first>uppercase|lowercase|capitalize):? {_TEXT}"
    rf"|{_SAYING}[\"']?(?P<cased>[^\"':]+?)[\"']? (?:in|to|into) (?:all )?"
    r"(?P<last>upper ?case|lower ?case|caps|capitals|capital letters))"
)
_ORDERED = re.compile(r"(?:say|write|spell|convert|turn|make) ")
_CODE = re.compile(
    rf"(?P<verb>encode|decode)? ?(?:{_SAYING}(?P<text>.+?) )?"
    r"(?:in|to|into|as|from|with|using|by)? ?(?P<code>rot-?13|base ?64|hex)"
    r"(?: (?P<direction>encode|decode|of|for|encoded|decoded))?:?(?: (?P<after>.+))?"
)
_BASES: Mapping[str, int] = {
    "binary": 2,
    "bin": 2,
    "octal": 8,
    "decimal": 10,
    "dec": 10,
    "hexadecimal": 16,
    "hex": 16,
    "binär": 2,
    "dezimal": 10,
}
_BASE = "|".join(_BASES)
_NUMBER = re.compile(
    rf"{_SAYING}(?:the )?(?:(?P<before>{_BASE}|roman)(?: (?:number|numeral|value|for|of))* )?"
    rf"(?P<digits>0x[0-9a-f]+|0b[01]+|0o[0-7]+|[0-9a-f]{{1,40}}|[ivxlcdm]{{1,15}})"
    rf"(?: (?:from |\()?(?P<origin>{_BASE})\)?)?"
    rf"(?: (?:in|to|into|as) (?:an? )?(?P<to>{_BASE}|roman numerals?|roman"
    r"|arabic(?: numerals?| numbers?)?|numbers?|digits|römisch|römischen zahlen))?"
    r"(?: (?:number|notation|form))?"
)
_NO_WORDS = frozenset(  # "how many letters in the alphabet": not words to count the letters of
    (
        *("a", "alphabet", "an", "arabic", "common", "english", "french", "german", "greek"),
        *("hebrew", "here", "it", "one", "russian", "spanish", "that", "the", "them", "there"),
        *("this", "total", "you"),
    )
)
_ROMAN_OF = re.compile(
    r"(?:what(?:'s| is) )?(?:the )?roman numerals? (?:for|of) (?P<digits>\d{1,4})"
)

HINT_CUE = re.compile(  # every question about letters and notations contains one of these
    r"\d|many|count|letter|character|word|vowel|reverse|backward|rückwärts|case|capital|caps|rot|base"
    r"|hex|bin|octal|dec|roman|arabic|number|numeral|digit|römisch|dez",
    re.IGNORECASE,
)


async def hint(question: str, context: HintContext) -> WorkedOut | None:
    """Return a text's or number's other form or letter count if the question asks for nothing
    else."""
    asked, written = without_courtesies(question), plain(question)
    if said := _number(asked):
        return WorkedOut(said, is_whole=True)
    for answer in (_count_answer, _reverse_answer, _case_answer, _code_answer):
        if worked_out := answer(asked, written):
            return worked_out
    return None


@tool(reads=True)
async def count_letter(
    text: Annotated[str, Field(max_length=2_000)],
    letter: Annotated[str, Field(min_length=1, max_length=1)],
) -> int:
    """Count how often a letter is in a text."""
    return text.lower().count(letter.lower())


@tool(reads=True)
async def spell_backwards(text: Annotated[str, Field(max_length=2_000)]) -> str:
    """Spell a text backwards."""
    return text[::-1]


def roman(number: int) -> str:
    """Return a number from 1 to 3999 in Roman numerals. Raises ValueError."""
    if not 1 <= number <= 3999:
        raise ValueError("Roman numerals go from 1 to 3999")
    text = ""
    for value, letters in _ROMAN:
        count, number = divmod(number, value)
        text += letters * count
    return text


def from_roman(text: str) -> int:
    """Return the value of a Roman numeral in canonical form. Raises ValueError."""
    rest, number = text.upper(), 0
    for value, letters in _ROMAN:
        while rest.startswith(letters):
            rest, number = rest.removeprefix(letters), number + value
    # Converting back rejects forms such as "IIII", which the greedy loop accepts.
    if rest or not text or roman(number) != text.upper():
        raise ValueError(f"{text} is no Roman numeral")
    return number


def _original_spelling(text: str, written: str) -> str:
    """Return a lower-case text in the spelling of the question as it was `written`."""
    at = written.lower().rfind(text)
    return written[at : at + len(text)] if at >= 0 else text


def _first(match: re.Match[str], names: Sequence[str]) -> str:
    groups = match.groupdict()
    return next((groups[name] for name in names if groups.get(name)), "")


def _whole(said: str, match: re.Match[str]) -> WorkedOut:
    """Return the answer to a question that a pattern has matched, with the texts in it that have no
    quotes around them."""
    groups = match.groupdict()
    unquoted = (groups.get(name) for name in ("named", "after", "back", "cased", "text"))
    return WorkedOut(said, is_whole=True, free=tuple(filter(None, unquoted)))


def _count_answer(asked: str, written: str) -> WorkedOut | None:
    if match := _LETTER.fullmatch(asked):
        text = _original_spelling(_first(match, ("quoted", "named", "word")), written)
        count = text.lower().count(match["letter"])
        return _whole(f'The letter "{match["letter"]}" is {_times(count)} in "{text}".', match)
    match = _LETTERS.fullmatch(asked)
    if not match:
        return None
    what, names = match["what"], ("quoted", "named", "word", "after")
    text = _original_spelling(_first(match, names), written).strip("\"'")
    if match["word"] and (what in ("words", "characters") or text.lower() in _NO_WORDS):
        return None
    counts: Mapping[str, Callable[[str], int]] = {
        "letters": lambda each: sum(map(str.isalpha, each)),
        "characters": len,
        "words": lambda each: len(each.split()),
        "vowels": lambda each: sum(letter in "aeiou" for letter in each.lower()),
    }
    count = counts[what](text)
    return _whole(f'"{text}" has {count} {what if count != 1 else what.removesuffix("s")}.', match)


def _times(count: int) -> str:
    return {0: "not", 1: "once", 2: "twice"}.get(count, f"{count} times")


def _reverse_answer(asked: str, written: str) -> WorkedOut | None:
    match = _BACKWARDS.fullmatch(asked)
    text = _original_spelling(_first(match, ("quoted", "named", "back")), written) if match else ""
    if match and match["back"] and (" " in text or not _says(asked)):
        text = re.sub(r"^(?:the )?(?:word |name )", "", text, flags=re.IGNORECASE)
        if " " in text or not _says(asked):
            return None
    return _whole(f'"{text}" backwards is "{text[::-1]}".', match) if match and text else None


def _says(asked: str) -> bool:
    """Return whether the question asks for a spelling, unlike "run backwards"."""
    return (
        re.match(r"what|how do you (?:say|write|spell)|say |write |spell |reverse", asked)
        is not None
    )


def _case_answer(asked: str, written: str) -> WorkedOut | None:
    match = _CASE.fullmatch(asked)
    if not match:
        return None
    text = _original_spelling(_first(match, ("quoted", "named", "cased")), written)
    if match["cased"] and " " in text and not _ORDERED.match(asked):
        return None  # "is there a way to have my console in caps"
    way = (match["first"] or match["last"]).replace(" ", "")
    cased = {"lowercase": text.lower(), "capitalize": text.title()}.get(way, text.upper())
    return _whole(cased, match)


def _code_answer(asked: str, written: str) -> WorkedOut | None:
    """Return a text encoded as rot13, base64 or hex, or decoded from rot13 or base64."""
    match = _CODE.fullmatch(asked)
    text = match and (match["after"] or match["text"])
    if not match or not text or text.startswith("what") or len(text) > _MAX_LENGTH:
        return None
    code, verb = (
        match["code"].replace("-", "").replace(" ", ""),
        match["verb"] or match["direction"],
    )
    text = _original_spelling(text, written).strip("\"'")
    if code == "rot13":
        return _whole(f"rot13: {codecs.encode(text, 'rot13')}", match)
    if not verb or verb not in ("encode", "decode", "encoded", "decoded", "of"):
        return None
    if code == "base64" and verb.startswith("decode"):
        decoded = _decode(text)
        return _whole(decoded, match) if decoded else None
    if verb.startswith("decode"):
        return None
    raw = text.encode()
    encoded = base64.b64encode(raw).decode() if code == "base64" else raw.hex(" ")
    return _whole(f"{code}: {encoded}", match)


def _decode(text: str) -> str | None:
    try:
        plain_text = base64.b64decode(text, validate=True).decode()
    except (binascii.Error, ValueError):
        return None
    return f"decoded: {plain_text}" if plain_text.isprintable() else None


def _number(asked: str) -> str | None:
    if match := _ROMAN_OF.fullmatch(asked):
        return _in_roman(int(match["digits"]))
    match = _NUMBER.fullmatch(asked)
    if not match:
        return None
    digits, before, to = match["digits"], match["before"], match["to"]
    if before and not to and before != match["origin"] and digits.isdecimal():
        if "roman" in before:
            return _in_roman(int(digits)) if len(digits) < 5 else None
        # "binary 1010" gives the number, "hex of 255" asks for its notation.
        is_asked = (
            re.search(rf"{before} (?:number |numeral |value )*(?:for|of) ", asked) is not None
        )
        return _in_base(int(digits), digits, _BASES[before]) if is_asked else None
    if not to:
        return None
    origin = match["origin"] or (before if before in _BASES else None)
    if to.startswith(("arabic", "number", "digit")):
        return _arabic(digits)
    value = _value(digits, _BASES[origin] if origin else None, to)
    if value is None or value.bit_length() > _MAX_BITS:
        return None
    if to.startswith(("roman", "röm")):
        return _in_roman(value)
    return _in_base(value, digits, _BASES[to], origin)


def _value(digits: str, base: int | None, to: str) -> int | None:
    """Return the value of digits, in `base` if it is given; None if they are invalid or
    ambiguous."""
    try:
        if digits[:2] in ("0x", "0b", "0o"):
            return int(digits, 0)
        if base:
            return int(digits, base)
        if to in _BASES and _BASES[to] == 10:
            return None  # "1010 in decimal": from which base?
        return int(digits)
    except ValueError:
        return None


def _in_base(value: int, digits: str, base: int, origin: str | None = None) -> str:
    shown = {2: f"{value:b}", 8: f"{value:o}", 10: str(value), 16: f"{value:x}"}[base]
    name = {2: "binary", 8: "octal", 10: "decimal", 16: "hexadecimal"}[base]
    return f"{digits}{f' ({origin})' if origin else ''} in {name} is {shown}."


def _in_roman(value: int) -> str | None:
    try:
        return f"{value} in Roman numerals is {roman(value)}."
    except ValueError as error:
        return f"{error}."


def _arabic(digits: str) -> str | None:
    try:
        return f"{digits.upper()} is {from_roman(digits)}."
    except ValueError:
        return None
