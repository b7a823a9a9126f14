"""Patterns of natural-language times; `time_phrases.py` says what they mean."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import time
from functools import cache

PARTS_OF_DAY: Mapping[str, time] = {
    **dict.fromkeys(("morning", "früh", "vormittag", "morgen"), time(9)),
    **dict.fromkeys(("noon", "mittag"), time(12)),
    **dict.fromkeys(("afternoon", "nachmittag"), time(15)),
    **dict.fromkeys(("evening", "abend"), time(19)),
    **dict.fromkeys(("tonight",), time(20)),
    **dict.fromkeys(("night", "nacht"), time(21)),
}
"""Default time of each part of the day."""

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
"""Pattern of a weekday, full, abbreviated or plural, in English or German."""

# Longest first: the alternation of a regular expression takes the first branch that matches.
_NUMBER = "|".join(sorted((*HOUR_WORDS, *_MORE_WORDS), key=len, reverse=True))
_COUNT = (
    rf"(?:(?:a )?(?P<{{0}}>\d{{{{1,6}}}}(?:[.,]\d{{{{1,2}}}})?(?=\s|[a-z])"
    rf"|(?<![a-zäöüß])(?:(?:one|a) and a half|half an?|einer halben|(?:a )?quarter of an"
    rf"|(?:einer )?viertel|{_NUMBER})(?=\s|stunde)))"
)
_ENGLISH_UNITS = r"s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?"
_GERMAN_UNITS = r"sekunden?|minuten?|stunden?|tage?n?|wochen?"
_UNIT = rf"(?:{_ENGLISH_UNITS}|{_GERMAN_UNITS})(?![a-zäöüß])"
_SPAN = rf"{_COUNT.format('c')}\s*{_UNIT}(?:\s+and a half)?".replace("(?P<c>", "(?:")
_SPANS = rf"{_SPAN}(?:(?:\s*,)?\s*(?:(?:and|und)\s+)?{_SPAN})*"
_MONTHS = rf"(?:\d{{1,3}}|{_NUMBER})\s+(?:months?|years?|monate?n?|jahre?n?)(?!\w)"

PARTS = re.compile(
    rf"{_COUNT.format('count')}\s*(?P<unit>{_UNIT})(?P<half>\s+and a half)?", re.IGNORECASE
)
"""Pattern of one part of a duration: "2 hours", "an hour and a half"."""

MONTHS = re.compile(
    rf"(?P<count>\d{{1,3}}|{_NUMBER})\s+(?P<unit>months?|years?|monate?n?|jahre?n?)"
)
"""Pattern of a duration in months or years, whose length depends on the calendar."""

# A number word counts only after "at" (a conditional on that group): "tomorrow one thing".
_AFTER_AT = rf"(?(at)(?:{_HOURS})|(?!))"
_CLOCK = (
    r"(?P<at>(?:at|um|by|around|gegen)\s+)?(?:"
    r"(?P<hour>\d{1,2})(?:[:.](?P<minute>[0-5]?\d{2}|\d\d))?"
    r"(?:\s*(?P<half>[ap]\.?m\b\.?)|\s*(?P<oclock>uhr|o'?clock)\b(?:\s+(?P<past>[0-5]\d)\b)?)?"
    r"(?!\w|:\d)"
    r"|(?P<named>noon|midday|midnight|mittag|mitternacht)\b"
    r"|(?P<relative>half past|quarter past|quarter to|halb|viertel nach|viertel vor)\s+"
    rf"(?P<of>\d{{1,2}}|{_HOURS})\b(?:\s*(?P<half2>[ap])\.?m\b)?"
    rf"|(?P<hourword>{_AFTER_AT})\b(?:\s*(?P<half3>[ap])\.?m\b|\s+o'?clock|\s+uhr)?"
    r")"
)
# Unambiguously a time of day, after "at" or by its form; a bare number is not enough.
_SURE = (
    r"(?=(?:at|um|by|around|gegen)\s|\d{1,2}:\d\d|\d{1,2}(?:[:.]\d\d)?\s*(?:[ap]\.?m\b|uhr|o'?clock)"
    r"|noon|midnight|midday|mitternacht|half past|quarter |viertel )"
)


def _unnamed(pattern: str) -> str:
    """Return a pattern with groups that have no names, which a pattern may contain only once."""
    return re.sub(r"\(\?P<\w+>", "(?:", pattern)


# A further time of day, "at 9 and 17"; a number word only if it is nothing else's number.
_FURTHER = _unnamed(_CLOCK).replace(
    _AFTER_AT,
    rf"(?:{_HOURS})(?=\s*(?:$|[,:;]|(?:to|that|about|and|und|every|o'?clock|uhr|[ap]\.?m)\b))",
)
_JOINT = r"(?:\s*,)?\s+(?:and|und|or|oder|&|\+)"
_AND = rf"{_JOINT}\s+"
SEPARATOR = re.compile(rf"{_AND}|\s*,\s*", re.IGNORECASE)
"""Pattern of what separates the times of day in the group `more`."""

_MORE = (
    rf"(?P<more>(?:\s*,\s*{_FURTHER})*{_AND}{_FURTHER}"
    rf"|(?:\s*,\s*{_SURE}{_FURTHER})+|(?:\s*,\s*{_FURTHER})+(?=\s+(?:to|that|about|dass|zu)\b|\s*[:;]|\s*$))?"
)
_CLOCKS = _CLOCK + _MORE
_SURE_CLOCKS = _SURE + _CLOCKS
_PART = r"(?:morning|noon|afternoon|evening|night|früh|vormittag|mittag|nachmittag|abend|nacht)"
_MONTH_NAME = (
    r"(?:jan(?:uary|uar)?|feb(?:ruary|ruar)?|mar(?:ch)?|märz|apr(?:il)?|may|mai|june?|juni|july?|juli"
    r"|aug(?:ust)?|sept?(?:ember)?|o[ck]t(?:ober)?|nov(?:ember)?|de[cz](?:ember)?)\b\.?"
)
_ORDINAL = r"\d{1,2}(?:st|nd|rd|th)"
_DATED = (
    r"\d{4}-\d\d-\d\d(?!\d)"
    rf"|(?:the\s+)?{_ORDINAL}\s+(?:of\s+)?{_MONTH_NAME}(?:,?\s+\d{{4}}\b)?"
    rf"|\d{{1,2}}\.?\s+{_MONTH_NAME}(?:,?\s+\d{{4}}\b)?"
    rf"|{_MONTH_NAME}\s+(?:the\s+)?\d{{1,2}}(?:st|nd|rd|th)?(?![\d:])(?:,?\s+\d{{4}}\b)?"
    r"|\d{1,2}\.\s?\d{1,2}\.(?:\s?\d{4})?(?!\d)"
)
_NEAR = (
    rf"tonight|(?:today|tomorrow)(?:\s+{_PART})?\b|(?:the\s+)?day after tomorrow(?:\s+{_PART})?\b"
    rf"|this\s+{_PART}\b|heute(?:\s+{_PART})?\b|morgen(?:\s+{_PART})?\b|übermorgen(?:\s+{_PART})?\b"
)
_ON_DAY = rf"(?:(?:on|this|next|coming|am|nächsten|kommenden)\s+)(?:{WEEKDAY})\b(?:\s+{_PART}\b)?"
_ON_NTH = rf"on the\s+{_ORDINAL}\b|am\s+\d{{1,2}}\.(?!\d)"
# A bare weekday may belong to the reminder ("monday's meeting"), so it counts only at the beginning
# or end of a text.
_DAY = (
    rf"(?P<day>(?:(?:on|am)\s+)?(?:{_DATED})|{_ON_NTH}|{_NEAR}|{_ON_DAY}"
    rf"|(?:{WEEKDAY})\b(?!')(?:\s+{_PART}\b)?)"
)
_SURE_DAY = rf"(?P<day>(?:(?:on|am)\s+)?(?:{_DATED})|{_ON_NTH}|{_NEAR}|{_ON_DAY})"
_REPEATED = r"(?:every|each|alle|jede[nrs]?)"
_STEP = (
    rf"(?:other|second|third|first|last|half(?:\s+an?)?|quarter(?:\s+of an)?|{_ORDINAL}|\d{{1,3}}"
    rf"|{_NUMBER}|paar|halbe|erste[nrs]?|zweite[nrs]?|dritte[nrs]?|letzte[nrs]?)"
)
_STEP_UNIT = (
    r"(?:seconds?|minutes?|hours?|days?|weekdays?|weekends?|weeks?|fortnights?|months?|quarters?"
    rf"|years?|minuten?|stunden?|tage?n?|wochen?|monate?n?|jahre?n?|{WEEKDAY}|{_PART}s?)"
)
# Intervals that no cron expression repeats, such as "other day", are matched too, so that they are
# refused: otherwise "every other day at 9" would be taken for "at 9", once.
_EVERY = (
    rf"(?:{_REPEATED}\s+(?:single\s+)?)(?P<every>{_STEP}\s+{_STEP_UNIT}|hour|stunde|day|tag|weekday"
    r"|werktag|weekend|wochenende|week|woche|month|monat|morgen|minute|fortnight|quarter|quartal"
    rf"|year|jahr|{_PART}|{_ORDINAL}(?:\s+of the month)?"
    rf"|(?:{WEEKDAY})(?:(?:\s*,|\s+and|\s+und)+\s*(?:{WEEKDAY}))*)\b(?!\s+and a half)"
)
_WEEKDAYS = r"(?:mon|tues|wednes|thurs|fri|satur|sun)days"
# After "weekly" and the like: another word, to which it may belong, as in "at 9 weekly meeting".
_NOUN = r"\s+(?!(?:on|at|to|that|about|of|please)\b)\w"
_ADVERB = (
    rf"(?P<every>daily|hourly|weekly|monthly|yearly(?!{_NOUN})|annually|täglich|stündlich"
    r"|wöchentlich|monatlich|jährlich|werktags"
    rf"|(?:on\s+)?week(?:day|end)s|(?:on\s+)?{_WEEKDAYS}(?:(?:\s*,|\s+and|\s+und)+\s*{_WEEKDAYS})*)\b"
)
_ON = rf"(?:\s+(?:on|am)\s+(?P<on>(?:the\s+)?{_ORDINAL}|{WEEKDAY}))?"
_THEN = rf"(?:[\sT,]+(?:{_CLOCKS}))?"

INTERVAL = re.compile(rf"(?P<step>{_STEP})\s+(?P<unit>{_STEP_UNIT})")
"""Pattern of an interval after "every": "other day", "3 hours"."""

_IN = rf"(?:in|after)\s+(?P<counts>{_SPANS}|{_MONTHS})"
_FROM_NOW = rf"(?P<counts>{_SPANS}|{_MONTHS})\s+(?:from now|later)\b"

_TIME_FORMS = (
    rf"{_EVERY}{_ON}(?:[\s,]+(?:{_SURE_CLOCKS}))?",
    rf"{_ADVERB}{_ON}(?:[\s,]+(?:{_SURE_CLOCKS}))?",
    _IN,
    _FROM_NOW,
    rf"{_SURE_CLOCKS},?\s+(?:{_EVERY}){_ON}",
    rf"{_SURE_CLOCKS},?\s+(?!(?:dai|hour|week|month)ly{_NOUN})(?:{_ADVERB}){_ON}",
    rf"{_SURE_CLOCKS}(?:,?\s+{_SURE_DAY})?",
)


def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_BEFORE, _AFTER = r"(?<![\w'.:/-])", r"(?![\w'/-])"


@dataclass(frozen=True, slots=True)
class TimeForms:
    """Compiled patterns of times: at the beginning of a text, at its end, and those unambiguous
    enough to count anywhere.

    `clock` matches one time of day. `joined_after` and `joined_before` match another time beside
    one that was found, such as " and on friday at 8".
    """

    leading: tuple[re.Pattern[str], ...]
    trailing: tuple[re.Pattern[str], ...]
    anywhere: tuple[re.Pattern[str], ...]
    clock: re.Pattern[str]
    joined_after: re.Pattern[str]
    joined_before: re.Pattern[str]


@cache
def forms() -> TimeForms:
    """Compile the patterns on first use: it takes a tenth of a second, and most processes never
    parse a time."""
    # A bare duration at the beginning of a text: "10m tea".
    bare = (
        rf"(?P<counts>{_SPANS}){_AFTER}(?!\s*(?:before|after|earlier|late|ago|vor|nach|into|of)\b)"
    )
    sure = (*_TIME_FORMS, rf"{_SURE_DAY}(?:[\s,]+(?:{_SURE_CLOCKS}))?")
    forms = (*_TIME_FORMS, _DAY + _THEN)
    other = rf"(?:{_SURE}{_FURTHER}|{_unnamed(_SURE_DAY)}|(?:{WEEKDAY})\b(?!')|{_unnamed(_IN)})"
    return TimeForms(
        leading=(*(_compile(form + _AFTER) for form in forms), _compile(bare)),
        trailing=tuple(_compile(_BEFORE + form + "$") for form in forms),
        anywhere=tuple(_compile(_BEFORE + form + _AFTER) for form in sure),
        clock=_compile(_CLOCK),
        joined_after=_compile(rf"{_AND}(?:again\s+)?(?:{other}|{_REPEATED}\s|{_ORDINAL}\b)"),
        joined_before=_compile(rf"{_BEFORE}{other}{_JOINT}(?:\s+{_ORDINAL})?\s*$"),
    )


def count_of(word: str) -> float:
    """Return the value of a number before a unit: "2", "1.5", "half an", "einer"."""
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
