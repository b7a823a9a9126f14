"""The forms of `llm.when`: patterns for days, times of day, spans and repetitions, by place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import time

PARTS_OF_DAY: Mapping[str, time] = {
    **dict.fromkeys(("morning", "früh", "vormittag", "morgen"), time(9)),
    **dict.fromkeys(("noon", "mittag"), time(12)),
    **dict.fromkeys(("afternoon", "nachmittag"), time(15)),
    **dict.fromkeys(("evening", "abend"), time(19)),
    **dict.fromkeys(("tonight",), time(20)),
    **dict.fromkeys(("night", "nacht"), time(21)),
}
"""When something is said that is to happen in a part of the day."""

_ENGLISH = "one two three four five six seven eight nine ten eleven twelve"
_GERMAN = "eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf"
HOUR_WORDS: Mapping[str, int] = {
    word: number for words in (_ENGLISH, _GERMAN) for number, word in enumerate(words.split(), 1)
}
_HOURS = "|".join(sorted(HOUR_WORDS, key=len, reverse=True))
_MORE_WORDS = {
    "fifteen": 15.0,
    "twenty": 20.0,
    "thirty": 30.0,
    "forty": 40.0,
    "sixty": 60.0,
    "ninety": 90.0,
    "fünfzehn": 15.0,
    "zwanzig": 20.0,
    "dreißig": 30.0,
    "couple of": 2.0,
    "few": 3.0,
    "anderthalb": 1.5,
    "eineinhalb": 1.5,
    "zweieinhalb": 2.5,
} | dict.fromkeys(("a", "an", "ein", "eine", "einer", "einem", "einen"), 1.0)
_HALVES = ("half an", "half a", "einer halben", "halben")
_QUARTERS = ("quarter of an", "viertel")

WEEKDAY = (
    r"(?:mon|tue(?:s)?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:days?)?"
    r"|(?:mon|diens|donners|frei|sams|sonn)tags?|mittwochs?"
)
"""A weekday; with an s, each of them."""

_NUMBER = "|".join(sorted((*HOUR_WORDS, *_MORE_WORDS), key=len, reverse=True))
_COUNT = (
    rf"(?:(?:a )?(?P<{{0}}>\d{{{{1,6}}}}(?:[.,]\d{{{{1,2}}}})?(?=\s|[a-z])"
    rf"|(?<![a-zäöüß])(?:(?:one|a) and a half|half an?|einer halben|(?:a )?quarter of an"
    rf"|(?:einer )?viertel|{_NUMBER})(?=\s|stunde)))"
)
_SHORT = r"s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?"
_LONG = r"sekunden?|minuten?|stunden?|tage?n?|wochen?"
_UNIT = rf"(?:{_SHORT}|{_LONG})(?![a-zäöüß])"
_SPAN = rf"{_COUNT.format('c')}\s*{_UNIT}(?:\s+and a half)?".replace("(?P<c>", "(?:")
_SPANS = rf"{_SPAN}(?:(?:\s*,)?\s*(?:(?:and|und)\s+)?{_SPAN})*"
_MONTHS = rf"(?:\d{{1,3}}|{_NUMBER})\s+(?:months?|years?|monate?n?|jahre?n?)(?!\w)"

PARTS = re.compile(
    rf"{_COUNT.format('count')}\s*(?P<unit>{_UNIT})(?P<half>\s+and a half)?", re.IGNORECASE
)
"""One part of a span: "2 hours", "an hour and a half"."""

MONTHS = re.compile(
    rf"(?P<count>\d{{1,3}}|{_NUMBER})\s+(?P<unit>months?|years?|monate?n?|jahre?n?)"
)
"""A span that the calendar decides."""

_CLOCK = (
    r"(?P<at>(?:at|um|by|around|gegen)\s+)?(?:"
    r"(?P<hour>\d{1,2})(?:[:.](?P<minute>[0-5]?\d{2}|\d\d))?"
    r"(?:\s*(?P<half>[ap]\.?m\b\.?)|\s*(?P<oclock>uhr|o'?clock)\b(?:\s+(?P<past>[0-5]\d)\b)?)?"
    r"(?!\w|:\d)"
    r"|(?P<named>noon|midday|midnight|mittag|mitternacht)\b"
    r"|(?P<relative>half past|quarter past|quarter to|halb|viertel nach|viertel vor)\s+"
    rf"(?P<of>\d{{1,2}}|{_HOURS})\b(?:\s*(?P<half2>[ap])\.?m\b)?"
    # A word alone is no time: "tomorrow one thing".
    rf"|(?P<hourword>(?(at)(?:{_HOURS})|(?!)))\b(?:\s*(?P<half3>[ap])\.?m\b|\s+o'?clock|\s+uhr)?"
    r")"
)
# With "at", or plainly a time of day: a number alone is none.
_SURE_CLOCK = (
    r"(?=(?:at|um|by|around|gegen)\s|\d{1,2}:\d\d|\d{1,2}(?:[:.]\d\d)?\s*(?:[ap]\.?m\b|uhr|o'?clock)"
    r"|noon|midnight|midday|mitternacht|half past|quarter |viertel )" + _CLOCK
)
_PART = r"(?:morning|noon|afternoon|evening|night|früh|vormittag|mittag|nachmittag|abend|nacht)"
_MONTH_NAME = (
    r"(?:jan(?:uary|uar)?|feb(?:ruary|ruar)?|mar(?:ch)?|märz|apr(?:il)?|may|mai|june?|juni|july?|juli"
    r"|aug(?:ust)?|sept?(?:ember)?|o[ck]t(?:ober)?|nov(?:ember)?|de[cz](?:ember)?)\b\.?"
)
_NTH = r"\d{1,2}(?:st|nd|rd|th)"
_DATED = (
    r"\d{4}-\d\d-\d\d(?!\d)"
    rf"|(?:the\s+)?{_NTH}\s+(?:of\s+)?{_MONTH_NAME}(?:,?\s+\d{{4}}\b)?"
    rf"|\d{{1,2}}\.?\s+{_MONTH_NAME}(?:,?\s+\d{{4}}\b)?"
    rf"|{_MONTH_NAME}\s+(?:the\s+)?\d{{1,2}}(?:st|nd|rd|th)?(?![\d:])(?:,?\s+\d{{4}}\b)?"
    r"|\d{1,2}\.\s?\d{1,2}\.(?:\s?\d{4})?(?!\d)"
)
_NEAR = (
    rf"tonight|(?:today|tomorrow)(?:\s+{_PART})?\b|(?:the\s+)?day after tomorrow(?:\s+{_PART})?\b"
    rf"|this\s+{_PART}\b|heute(?:\s+{_PART})?\b|morgen(?:\s+{_PART})?\b|übermorgen(?:\s+{_PART})?\b"
)
_ON_DAY = rf"(?:(?:on|this|next|coming|am|nächsten|kommenden)\s+)(?:{WEEKDAY})\b(?:\s+{_PART}\b)?"
_ON_NTH = rf"on the\s+{_NTH}\b|am\s+\d{{1,2}}\.(?!\d)"
# A weekday alone may be part of what is to happen ("monday's meeting"), unless it is at an end.
_DAY = (
    rf"(?P<day>(?:(?:on|am)\s+)?(?:{_DATED})|{_ON_NTH}|{_NEAR}|{_ON_DAY}"
    rf"|(?:{WEEKDAY})\b(?!')(?:\s+{_PART}\b)?)"
)
_SURE_DAY = rf"(?P<day>(?:(?:on|am)\s+)?(?:{_DATED})|{_ON_NTH}|{_NEAR}|{_ON_DAY})"
_EVERY = (
    r"(?:(?:every|each|jede[nrs]?)\s+(?:single\s+)?)(?P<every>hour|stunde|day|tag|weekday|werktag"
    rf"|weekend|wochenende|week|woche|month|monat|morgen|{_PART}|{_NTH}(?:\s+of the month)?"
    rf"|(?:{WEEKDAY})(?:(?:\s*,|\s+and|\s+und)+\s*(?:{WEEKDAY}))*)\b"
)
_ADVERB = (
    r"(?P<every>daily|hourly|weekly|monthly|täglich|stündlich|wöchentlich|monatlich|werktags"
    r"|(?:on\s+)?weekdays|(?:on\s+)?(?:mon|tues|wednes|thurs|fri|satur|sun)days)\b"
)
_ON = rf"(?:\s+(?:on|am)\s+(?P<on>(?:the\s+)?{_NTH}|{WEEKDAY}))?"
_THEN = rf"(?:[\sT,]+(?:{_CLOCK}))?"

_IN = rf"(?:in|after)\s+(?P<counts>{_SPANS}|{_MONTHS})"
_FROM_NOW = rf"(?P<counts>{_SPANS}|{_MONTHS})\s+(?:from now|later)\b"

_FORMS = (
    rf"{_EVERY}{_ON}(?:[\s,]+(?:{_SURE_CLOCK}))?",
    rf"{_ADVERB}{_ON}(?:[\s,]+(?:{_SURE_CLOCK}))?",
    _IN,
    _FROM_NOW,
    rf"{_SURE_CLOCK}(?:,?\s+{_SURE_DAY})?",
)


def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_BEFORE, _AFTER = r"(?<![\w'.:/-])", r"(?![\w'/-])"

LEADING = tuple(_compiled(form + _AFTER) for form in (*_FORMS, _DAY + _THEN))
"""Those with which a text may begin."""

TRAILING = tuple(_compiled(_BEFORE + form + "$") for form in (*_FORMS, _DAY + _THEN))
"""Those with which it may end."""

ANYWHERE = tuple(
    _compiled(_BEFORE + form + _AFTER)
    for form in (*_FORMS, rf"{_SURE_DAY}(?:[\s,]+(?:{_SURE_CLOCK}))?")
)
"""Those that are certain within a text too."""

BARE = _compiled(
    rf"(?P<counts>{_SPANS}){_AFTER}(?!\s*(?:before|after|earlier|late|ago|vor|nach|into|of)\b)"
)
"""A span alone, with which a text may begin: "10m tea"."""


def count_of(word: str) -> float:
    """Return the number that stands before a unit: "2", "1.5", "half an", "einer"."""
    word = word.lower().strip()
    if word[0].isdigit():
        return float(word.replace(",", "."))
    if word.startswith(_HALVES):
        return 0.5
    if word.endswith("and a half"):
        return 1.5
    if word.removeprefix("a ").removeprefix("einer ").startswith(_QUARTERS):
        return 0.25
    return float(HOUR_WORDS.get(word) or _MORE_WORDS.get(word, 1.0))
