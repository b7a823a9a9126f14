"""World clock: the current time and date in any time zone, and date arithmetic.

A question is answered if every word of it names a place, a day, a time, a span or what is asked
(`Entities`), or belongs to the frame of such questions.
"""

from __future__ import annotations

import calendar
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import cache
from pathlib import Path
from typing import Annotated
from zoneinfo import ZoneInfo, available_timezones

from pydantic import Field

from llm.client.settings import AgentSettings
from llm.reading.days import Day, add_duration, clock_at, day_at
from llm.reading.numbers import Duration, duration_at
from llm.reading.reading import words_beside_frame
from llm.reading.vocabulary import MAX_TEXT_LENGTH, Sentence
from llm.scheduling.cron_schedule import parse_zone
from llm.skills.hint import HintContext, WorkedOut
from llm.tools.toolbox import ToolError, tool
from terrarium.config import Config

_MOST_WORDS = 6  # tokens of a name: "america/argentina/buenos aires"
_NO_CITIES = ("Etc/", "SystemV/", "US/", "posix/", "right/")


@dataclass(frozen=True, slots=True)
class NamedPlace:
    """A place as an answer names it, "in Tokyo" or "here", in the tokens [start, end)."""

    where: str
    zone: tzinfo
    start: int = 0
    end: int = 0


@dataclass(frozen=True, slots=True)
class NamedClock:
    """A time of day in the tokens [start, end)."""

    of_day: time
    start: int
    end: int


@dataclass(slots=True)
class Entities:
    """The things that a question of somebody in a `zone` names: places, days (with True for one in
    the past), a time of day, a span with its sign, a year or its distance from this one, and a
    month (0: this one). `wishes` are the words for what is asked, as the vocabulary has them."""

    zone: tzinfo
    places: list[NamedPlace] = field(default_factory=list)
    days: list[tuple[Day, bool]] = field(default_factory=list)
    clock: NamedClock | None = None
    span: Duration | None = None
    sign: int = 1
    year: int | None = None
    years_away: int | None = None
    month: int | None = None
    wishes: set[str] = field(default_factory=set)

    def year_at(self, today: date) -> int | None:
        """Return the year that is named, None for none."""
        return self.year if self.years_away is None else today.year + self.years_away

    def week_of(self, day: date) -> str:
        """Return ", in week 47" of a day if the question asks for that, else ""."""
        wishes = self.wishes - {"week"} if "count" in self.wishes else self.wishes
        return f", in week {day.isocalendar().week}" if wishes & {"week", "week number"} else ""

    def read_span(self, sentence: Sentence, at: int) -> int | None:
        """Read "in 3 weeks", "2 hours ago", "10 days before", "the day after"."""
        back, ahead = sentence.after("ago_before", at), sentence.after("in", at)
        duration = duration_at(sentence, sentence.skip("some", back or ahead or at))
        day = sentence.phrase("unit", sentence.after("the", at) or len(sentence))
        if duration is None and day and day[0] == "day" and sentence.phrase("shift", day[1]):
            duration = Duration.of(1, "day"), day[1]
        if duration is None or self.span:
            return None
        length, end = duration
        ago, later = sentence.after("ago", end), sentence.after("from_now", end)
        shift = sentence.phrase("shift", end)
        if not (back or ahead or ago or later or shift):
            return None
        self.span = length
        self.sign = -1 if back or ago or (shift and not later and shift[0] == "before") else 1
        return ago or later or (shift[1] if shift else end)

    def read_day(self, sentence: Sentence, at: int) -> int | None:
        """Read "christmas", "the 24th", "last friday"; no part of a day."""
        last = sentence.after("last", at)
        named = day_at(sentence, last or at, is_asked=True)
        if named is None or named[0].part:
            return None
        day, end = named
        after = sentence.after("last_weekday", end)
        self.days.append((replace(day, is_next=True), bool(last or after)))
        return after or end

    def read_clock(self, sentence: Sentence, at: int) -> int | None:
        """Read "3pm", "at 9", "noon"; no number alone, which may be anything."""
        named = clock_at(sentence, at)
        told = named[0].time_in() if named and not self.clock else None
        if named is None or told is None or (named[0].bare and not named[0].certainty):
            return None
        self.clock = NamedClock(told[0], at, named[1])
        return named[1]

    def read_calendar(self, sentence: Sentence, at: int) -> int | None:
        """Read "2028", "next year", "february", "this month"."""
        word, span = sentence.word(at), sentence.phrase("span", at)
        if len(word) == 4 and word.isdecimal() and int(word) and self.year is None:
            self.year = int(word)
            return at + 1
        if year := sentence.phrase("this_year", at):
            self.years_away = int(year[0])
            return year[1]
        month = span if span and span[0] == "month 0" else sentence.phrase("month", at)
        if month is None or self.month is not None:
            return None
        self.month = int(month[0].removeprefix("month"))
        return month[1]

    def read_wish(self, sentence: Sentence, at: int) -> int | None:
        """Read "time", "how many", "here"."""
        wish = sentence.phrase("wish", at) or sentence.phrase("unit", at)
        if wish is None:
            return None
        if wish[0] == "here":
            self.places.append(NamedPlace("here", self.zone, at, wish[1]))
        self.wishes.add(wish[0])
        return wish[1]

    def read_place(self, sentence: Sentence, at: int) -> int | None:
        """Read "in tokyo", "sydney, australia"."""
        named = place_at(sentence, at)
        if named is None:
            return None
        place, end = named
        is_clear = sentence.between(at, at + 1).isupper() or sentence.word(at - 1) in ("in", "to")
        if not is_clear and not words_beside_frame(place.name, "time"):
            return None  # "la" and "et" are articles and conjunctions, too
        self.places.append(NamedPlace(f"in {place.name}", ZoneInfo(place.zone), at, end))
        return named[1]


def entities_in(text: str, zone: tzinfo) -> Entities | None:
    """Return what a question names; None if a word of it is no such thing and does not belong to
    the frame of such questions, so that it may ask for something else."""
    sentence, found, at, others = Sentence(text), Entities(zone), 0, []
    spans = (found.read_span, found.read_day, found.read_wish)
    while at < len(sentence):
        for read in (*spans, found.read_clock, found.read_calendar, found.read_place):
            if end := read(sentence, at):
                break
        else:
            others.append(sentence.between(at, end := at + 1))
        at = end
    is_whole = len(text) <= MAX_TEXT_LENGTH and not words_beside_frame(" ".join(others), "time")
    return found if is_whole else None


@dataclass(frozen=True, slots=True)
class ZonedPlace:
    """A place by its usual `name` and the IANA name of its time zone, "" for several."""

    name: str
    zone: str


def place_at(sentence: Sentence, at: int) -> tuple[ZonedPlace, int] | None:
    """Return the place at a position, and the position after it and its country."""
    found = _name_at(sentence, at)
    if found is None or not found[0].zone:
        return None
    place, end = found
    country = _name_at(sentence, end + (sentence.word(end) == ","))
    return place, country[1] if country and country[0].zone in ("", place.zone) else end


def zone_name(name: str) -> str | None:
    """Return the IANA name of the time zone of a city, a country with a single zone, an
    abbreviation or an IANA name, in any case; None if it is unknown."""
    sentence = Sentence(name.replace("_", " ").strip(" ?.!,"))
    found = place_at(sentence, sentence.skip("the", 0)) or place_at(sentence, 0)
    return found[0].zone if found and found[1] == len(sentence) else None


def _name_at(sentence: Sentence, at: int) -> tuple[ZonedPlace, int] | None:
    for end in range(min(at + _MOST_WORDS, len(sentence)), at, -1):
        if place := _places().get(sentence.words[at:end]):
            return place, end
    return None


@cache
def _places() -> Mapping[tuple[str, ...], ZonedPlace]:
    """Return the places by the words of their full names, their cities, and the names in
    `places.toml`; of several zones for one city the alphabetically first."""
    zones = available_timezones() - {"localtime", "Factory"}
    named = [(name, name) for name in zones if "/" in name]
    cities = [name for name in sorted(zones, reverse=True) if not name.startswith(_NO_CITIES)]
    named += [(name.rpartition("/")[2], name) for name in cities if "/" in name]
    stored = tomllib.loads(Path(__file__).with_name("places.toml").read_text(encoding="utf-8"))
    for zone, listed in stored.items():
        # Zones that this system's database does not have are left out, as ZoneInfo would raise.
        if not zone or zone in zones:
            named += [(name, zone) for name in listed.split(",")]
    spelled = [(" ".join(name.replace("_", " ").split()), zone) for name, zone in named]
    return {Sentence(name).words: ZonedPlace(name, zone) for name, zone in spelled if name}


async def hint(question: str, context: HintContext) -> WorkedOut | None:
    """Return the answer to a question that asks only for a time, a date or a span between dates."""
    zone, found = context.zone, entities_in(question, context.zone)
    if found is None:
        return None
    # A question that was not read has to say more plainly that it asks for this.
    is_read = context.reading is not None and context.reading.kind
    if not (is_read or found.wishes - {"", "past"} or (found.clock and found.places)):
        return None
    try:
        said = time_answer(found, context.now, zone)
        said = said or date_answer(found, context.now.astimezone(zone).date())
    except (ValueError, OverflowError):  # "31 february", "in 9999 years"
        return None
    return WorkedOut(said, is_whole=True) if said else None


@dataclass(frozen=True, slots=True)
class TimeTools:
    """The tool that tells the time: without a zone in that of `<now>`, `home`."""

    home: str

    @tool(reads=True)
    async def current_time(
        self,
        zone: Annotated[
            str,
            Field(max_length=60, description='IANA zone or a large city: "Europe/Vienna", "Tokyo"'),
        ] = "",
    ) -> str:
        """Tell the date and time now, in the zone of <now> or another one."""
        found = zone_name(zone) if zone else self.home
        if found is None:
            raise ToolError(f"there is no zone {zone}; write it as Area/City")
        return f"{datetime.now(parse_zone(found)):%A %Y-%m-%d %H:%M %Z}"


def create_tools(config: Config) -> Sequence[object]:
    """Return the owner of `current_time`, in the time zone of `[agent]`."""
    return [TimeTools(config.section(AgentSettings).zone_name)]


@tool(reads=True)
async def days_between(first: date, second: date) -> int:
    """Count the days from one date to another; dates are YYYY-MM-DD."""
    return (second - first).days


_OF_NOW = frozenset({"time", "day", "week", "week number", "month", "year", "hour"})
_OF_DATES = frozenset({"until", "left", "leap"})


def time_answer(found: Entities, now: datetime, zone: tzinfo) -> str | None:
    """Return the answer to a question about the time of day, asked at `now` by somebody in `zone`;
    None for any other question. Raises OverflowError for times that do not exist."""
    wishes, span, places = found.wishes, found.span, found.places
    is_of_year = found.years_away is not None and not wishes & {"week", "week number"}
    if found.year or is_of_year or found.month is not None or "second" in wishes:
        return None
    if found.clock:
        return None if found.days or span else _of_clock(found, found.clock, now, zone)
    if wishes & _OF_DATES or (span and (found.days or span.months or "count" in wishes)):
        return None
    verb = "is"
    if span:
        now += found.sign * timedelta(seconds=float(span.seconds))
        verb = "will be" if found.sign > 0 else "was"
    elif "past" in wishes:
        return None
    if places:
        # "is it tomorrow already in sydney?", but neither "when is easter in greece?" nor "here"
        is_asked = found.days or wishes & (_OF_NOW | {"now", "difference"})
        is_near = all(day.is_weekday or day.offset is not None for day, _ in found.days)
        first = places[0] if places[1:] else NamedPlace("here", zone)
        if not (is_asked and is_near):
            return None
        here, told = now.astimezone(first.zone), []
        for place in places:
            there = now.astimezone(place.zone)
            apart = (there.utcoffset() or timedelta()) - (here.utcoffset() or timedelta())
            distance = f", the same as {first.where}"
            if place == first:
                distance = ""
            elif apart:
                distance = f", {_hours(abs(apart))} {'ahead' if apart > timedelta() else 'behind'}"
            told.append(f"It {verb} {_in_words(there)} {place.where}{distance}.")
        return " ".join(told)
    is_counted = "count" in wishes and "time" not in wishes
    is_of_now = not span.is_of_days if span else bool(wishes & _OF_NOW)
    if found.days or is_counted or not is_of_now:
        return None
    local = now.astimezone(zone)
    return f"It {verb} {_in_words(local)}{found.week_of(local)}."


def _in_words(local: datetime) -> str:
    """Return a time in words: "06:05 on Sunday 22 November 2026 (CET)"."""
    return f"{local:%H:%M} on {day_in_words(local.date())} ({local.tzname()})"


def _of_clock(found: Entities, clock: NamedClock, now: datetime, zone: tzinfo) -> str | None:
    """Return a time of day in two places, in one and here both ways, or how long it is until it."""
    places, local = found.places, now.astimezone(zone)
    if not places:
        due = datetime.combine(local, clock.of_day, zone)
        due = due if due > local else due + timedelta(days=1)
        left = _hours(due.astimezone(UTC) - now)
        return f"It is {_in_words(local)}, {left} before {due:%H:%M}."
    if len(places) > 2 or "until" in found.wishes:
        return None
    if len(places) == 1:  # "what is 3pm in tokyo" may mean either
        [there], here = places, NamedPlace("here", zone)
        return f"{_convert(clock, here, there, now)}; {_convert(clock, there, here, now)}."
    # The time is that of the place next to it: "what time is it in lima when it's 8pm in berlin".
    gaps = [(min(abs(p.start - clock.end), abs(clock.start - p.end)), -p.start) for p in places]
    one, other = places if gaps[0] < gaps[1] else places[::-1]
    return f"{_convert(clock, one, other, now)}."


def _convert(clock: NamedClock, one: NamedPlace, other: NamedPlace, now: datetime) -> str:
    """Return a time of today in the first place and in the second one."""
    here = datetime.combine(now.astimezone(one.zone), clock.of_day, one.zone)
    there = here.astimezone(other.zone)
    days = (there.date() - here.date()).days
    later = {0: "", 1: " on the next day", -1: " on the day before"}.get(days, "")
    return (
        f"{here:%H:%M} {_with_zone(one, here)} is {there:%H:%M}{later} {_with_zone(other, there)}"
    )


def _with_zone(place: NamedPlace, local: datetime) -> str:
    zone = str(local.tzname())
    return place.where if place.where.endswith(f" {zone}") else f"{place.where} ({zone})"


def _hours(span: timedelta) -> str:
    hours, rest = divmod(int(span.total_seconds()), 3600)
    parts = [count(hours, "hour")] * (hours > 0) + [count(rest // 60, "minute")] * (rest > 59)
    return " ".join(parts) or "less than a minute"


_NEAR = {-1: "Yesterday was", 0: "Today is", 1: "Tomorrow is"}
_OTHER_UNITS = frozenset({"second", "minute", "hour", "month", "quarter"})


def date_answer(found: Entities, today: date) -> str | None:
    """Return the answer to a question about dates, asked on `today`; None for any other one.

    Raises ValueError and OverflowError for days that do not exist.
    """
    wishes = found.wishes
    is_of_hours = "count" in wishes and wishes & _OTHER_UNITS
    # "the last sunday in october", "in what year is 29 february a saturday"
    is_rule = found.days and (found.month is not None or {"year", "count"} & wishes == {"year"})
    if found.clock or found.places or is_of_hours or is_rule or "second" in wishes:
        return None
    if not (found.days or found.span or wishes & {"until", "past"}):
        return _of_calendar(found, today)
    year, days = found.year_at(today), found.days
    if not days and (year or found.month):  # a month or year alone is its first day
        days = [(Day(month=found.month or 1, day=1), False)]
    named = []
    for each, is_past in days:
        lacks_year = not each.year and (each.month or each.feast)
        day = replace(each, year=year) if year and lacks_year else each
        when = day.nearest(today, past=is_past or "past" in wishes)
        if when is None:
            raise ValueError(f"{day.words} is no date")
        named.append((day, when))
    if found.span:
        if len(named) > 1 or not found.span.is_of_days or (not named and "count" in wishes):
            return None
        start = named[0][1] if named else today
        end = add_duration(start, found.span, found.sign)
        return _sentence(Day(), end, found, today) if end else None
    if len(named) > 1 and any(day.is_of_any_month for day, _ in named):
        return None  # "the next friday the 13th", "from the 3rd to the 29th of february"
    if len(named) == 2 and wishes & {"count", "between"}:
        first, second = sorted(day for _, day in named)
        distance = _days_in_words((second - first).days, found)
        return f"{distance} from {day_in_words(first)} to {day_in_words(second)}."
    # "is tomorrow a tuesday?" asks for tomorrow.
    ranks = [0 if day.offset is not None else 2 if day.is_weekday else 1 for day, _ in named]
    best = [each for each, rank in zip(named, ranks, strict=True) if rank == min(ranks)]
    return _sentence(*best[0], found, today) if len(best) == 1 else None


def day_in_words(day: date) -> str:
    """Return a day in words: "Sunday 22 November 2026"."""
    return f"{day:%A} {day.day} {day:%B} {day.year}"


def _sentence(day: Day, when: date, found: Entities, today: date) -> str:
    """Return a day and how far away it is."""
    days = (when - today).days
    told = f"{day_in_words(when)}{found.week_of(when)}"
    if day.offset is not None and days in _NEAR:
        return f"{_NEAR[days]} {told}."
    verb = "was" if days < 0 else "is"
    subject = f"{day.words[:1].upper()}{day.words[1:]} {verb} on" if day.feast else f"That {verb}"
    first, last = sorted((when, today))
    years = last.year - first.year - ((last.month, last.day) < (first.month, first.day))
    distance = _days_in_words(abs(days), found) + (f", {count(years, 'year')}" if years else "")
    away = f", in {distance}" if days > 0 else f", {distance} ago" if days else ", today"
    lead = f"Today is {day_in_words(today)}. " if day.is_weekday else ""
    return f"{lead}{subject} {told}{away}."


def _of_calendar(found: Entities, today: date) -> str | None:
    """Return the length of a year or month, and whether a year is a leap year."""
    wishes, named = found.wishes, found.year_at(today)
    year = named or today.year
    if found.month is not None and "count" in wishes:
        month = found.month or today.month
        days, rest = calendar.monthrange(year, month)[1], 0
        if (year, month) == (today.year, today.month):
            rest = days - today.day
        told = f"{calendar.month_name[month]} {year} has {days} days"
    elif found.month is None and ("leap" in wishes or ("count" in wishes and named)):
        is_leap, rest = calendar.isleap(year), 0
        if year == today.year:
            rest = (date(year, 12, 31) - today).days
        told = f"{year} is {'a' if is_leap else 'no'} leap year and has {365 + is_leap} days"
    else:
        return None
    if "leap" in wishes:
        following = next(y for y in range(year + 1, year + 9) if calendar.isleap(y))
        return f"{told}; the next leap year is {following}."
    return f"{told}, {_days_in_words(rest, found)} of which are left." if rest else f"{told}."


def _days_in_words(days: int, found: Entities) -> str:
    weeks, rest = divmod(days, 7)
    if "week" not in found.wishes or not weeks:
        return count(days, "day")
    more = f" and {count(rest, 'day')}" if rest else ""
    return f"{count(days, 'day')}, {count(weeks, 'week')}{more}"


def count(number: int, unit: str) -> str:
    """Return "1 day", "2 days"."""
    return f"{number} {unit}{'' if number == 1 else 's'}"
