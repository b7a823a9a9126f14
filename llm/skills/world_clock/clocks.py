"""Questions about the time of day: "what time is it in Tokyo", "3pm Berlin time in Sydney"."""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta, tzinfo

from llm.reading.question_text import forms, found_in
from llm.skills.world_clock.places import zone_of

_NOW = r"(?: (?:right now|now|currently|at the moment|today|here|gerade|jetzt))?"
_WHAT = r"(?:what(?:'?s| is) )?"
_PLACE = r"(?P<place>[\w./' ,äöüß-]{2,40}?)"
_HERE = forms(
    rf"(?:what(?:'?s| is)? ?the time|what time is it|what time do (?:you|we) have){_NOW}",
    rf"(?:the )?(?:current )?time{_NOW}|what hour is it{_NOW}|do you have the time{_NOW}",
    rf"what(?:'?s| is) the current time{_NOW}",
    rf"how late is it{_NOW}",
    rf"wie spät (?:ist es|haben wir es){_NOW}|uhrzeit|wie ?viel uhr (?:ist es|haben wir){_NOW}",
)
_THERE = forms(
    rf"(?:{_WHAT}(?:the )?)?(?:current |local |exact )?time(?: is it)?{_NOW} (?:in|at|for|of)"
    rf" {_PLACE}{_NOW}",
    rf"(?:now|what time(?: is it)?{_NOW}) (?:in|at|for) {_PLACE}{_NOW}",
    rf"(?:wie spät ist es|wie ?viel uhr ist es|uhrzeit){_NOW} in {_PLACE}{_NOW}",
    rf"what time do they have in {_PLACE}{_NOW}",
    rf"how late is it{_NOW} in {_PLACE}{_NOW}",
    rf"{_WHAT}(?:the )?(?:current )?(?P<place>\w{{2,20}}) time{_NOW}",
)
_CLOCK = (
    r"(?P<clock>\d{1,2}(?:[:.h]\d{2})?(?: ?[ap]\.?m\.?)?|noon|midnight)(?: o'?clock| hours| uhr)?"
)
_ORIGIN = r"(?P<origin>[\w./' äöüß-]{2,30}?)"
_TARGET = r"(?P<target>[\w./' ,äöüß-]{2,30}?)"
_CONVERT = r"(?:what(?:'?s| is| time is)? |convert |when is )?"
_WHEN = r"(?:when|if|at) (?:it'?s |it is )?"
_CONVERSIONS = forms(
    rf"{_CONVERT}{_CLOCK} (?:in )?(?:the )?{_ORIGIN}(?: time)? (?:in|to|into|for) {_TARGET}"
    r"(?: time)?",
    rf"{_WHEN}{_CLOCK} (?:in )?{_ORIGIN}(?: time)?,?"
    rf" (?:what time is it|what is it|then) in {_TARGET}",
    rf"what time is it in {_TARGET} {_WHEN}{_CLOCK} (?:in )?{_ORIGIN}(?: time)?",
)
_FROM_HERE = forms(
    rf"{_CONVERT}{_CLOCK}(?: my time| here| local time)? (?:in|to) {_TARGET}(?: time)?",
    rf"what time is it in {_TARGET} {_WHEN}{_CLOCK} here",
)
_DIFFERENCE = forms(
    rf"{_WHAT}(?:the )?time (?:zone )?difference (?:between|from|of) {_ORIGIN} (?:and|to|with)"
    rf" {_TARGET}",
    rf"how (?:many hours|far) (?:ahead|behind) (?:of )?{_ORIGIN} is {_TARGET}",
)


def clock_answer(asked: str, now: datetime, zone: tzinfo) -> str | None:
    """Return the answer to a question about the time of day, asked at `now` by somebody in `zone`;
    None for any other question."""
    if found_in(_HERE, asked) is not None:
        return f"It is {_format_time(now.astimezone(zone))}."
    if (found := found_in(_THERE, asked)) and (there := zone_of(found["place"])):
        return f"In {title_of(found['place'])} it is {_format_time(now.astimezone(there))}."
    return _convert_clock(asked, now, zone) or _difference(asked, now)


def time_there(now: datetime, zone: tzinfo) -> str:
    """Return the weekday, date and time in a time zone, with the zone's abbreviation."""
    local = now.astimezone(zone)
    return f"{local:%A %Y-%m-%d %H:%M} {local.tzname()}"


def title_of(place: str) -> str:
    """Return the name of a place in title case, an abbreviation in upper case."""
    place = re.sub(r"^the ", "", place.strip())
    if zone_of(place) and len(place) <= 4 and place not in _SHORT_NAMES:
        return place.upper()
    small = ("of", "the", "de", "da", "del")
    words = [word if word in small else word[:1].upper() + word[1:] for word in place.split()]
    return "/".join(part[:1].upper() + part[1:] for part in " ".join(words).split("/"))


_SHORT_NAMES = frozenset(  # names of three or four letters that are not abbreviations
    (
        *("rome", "oslo", "lima", "cuba", "peru", "iran", "iraq", "riga", "bern", "prag", "rom"),
        *("wien", "rio", "genf", "nice", "pune", "graz", "java", "bali", "apia", "guam", "fiji"),
        *("kiev", "kyiv"),
    )
)


def _format_time(local: datetime) -> str:
    return f"{local:%H:%M} on {local:%A} {local.day} {local:%B} ({local.tzname()})"


def _convert_clock(asked: str, now: datetime, zone: tzinfo) -> str | None:
    for form in _CONVERSIONS:
        if found := found_in((form,), asked):
            origin, target = zone_of(found["origin"]), zone_of(found["target"])
            clock = _clock(found["clock"])
            # If these are not known places, a later form may split the text correctly.
            if origin and target and clock:
                told = (title_of(found["origin"]), title_of(found["target"]))
                return _both(clock, now, (origin, target), told)
    if found := found_in(_FROM_HERE, asked):
        clock, there = _clock(found["clock"]), zone_of(found["target"])
        if clock and there:
            return _both(clock, now, (zone, there), ("", title_of(found["target"])))
    return None


def _both(clock: time, now: datetime, zones: tuple[tzinfo, tzinfo], names: tuple[str, str]) -> str:
    """Return a sentence with a time of today in the first zone and in the second one."""
    here = datetime.combine(now.astimezone(zones[0]).date(), clock, zones[0])
    there = here.astimezone(zones[1])
    days = (there.date() - here.date()).days
    later = {0: "", 1: " on the next day", -1: " on the day before"}.get(days, "")
    place = f" in {_with_zone(names[0], here)}" if names[0] else f" ({here.tzname()})"
    return f"{here:%H:%M}{place} is {there:%H:%M}{later} in {_with_zone(names[1], there)}."


def _with_zone(name: str, local: datetime) -> str:
    return name if name == local.tzname() else f"{name} ({local.tzname()})"


def _difference(asked: str, now: datetime) -> str | None:
    found = found_in(_DIFFERENCE, asked)
    if not found:
        return None
    origin, target = zone_of(found["origin"]), zone_of(found["target"])
    if not origin or not target:
        return None
    names = title_of(found["origin"]), title_of(found["target"])
    one, other = now.astimezone(origin).utcoffset(), now.astimezone(target).utcoffset()
    assert one is not None
    assert other is not None
    apart = other - one
    if not apart:
        return f"{names[1]} has the same time as {names[0]}."
    word = "ahead of" if apart > timedelta() else "behind"
    return f"{names[1]} is {_hours(abs(apart))} {word} {names[0]} now."


def _hours(span: timedelta) -> str:
    hours, seconds = divmod(span.seconds, 3600)
    text = f"{hours} hour{'' if hours == 1 else 's'}"
    return f"{text} and {seconds // 60} minutes" if seconds else text


def _clock(text: str) -> time | None:
    """Parse a time of day: "3pm", "15:00", "noon". None for a bare number."""
    if text in ("noon", "midnight"):
        return time(12 if text == "noon" else 0)
    match = re.fullmatch(r"(\d{1,2})(?:[:.h](\d{2}))?(?: ?([ap])\.?m\.?)?", text)
    if not match or not (match[2] or match[3]):
        return None  # "15 in Berlin" may be anything
    hour = int(match[1])
    if match[3]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if match[3] == "p" else 0)
    try:
        return time(hour, int(match[2] or 0))
    except ValueError:
        return None
