"""The places, days, times and spans in a question about the clock or the calendar."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import date, time, tzinfo
from zoneinfo import ZoneInfo

from llm.reading.clocks import clock_at
from llm.reading.days import Day, day_at
from llm.reading.numbers import Duration, duration_at
from llm.reading.slots import words_beside_frame
from llm.reading.vocabulary import MAX_TEXT_LENGTH, Sentence
from llm.skills.world_clock.places import place_at


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
    month (0: this one). `wishes` are the words for what is asked, by their values in the
    vocabulary."""

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


def entities_in(text: str, zone: tzinfo) -> Entities | None:
    """Return what a question names; None if a word of it is no such thing and does not belong to
    the frame of such questions, so that it may ask for something else."""
    sentence, found, at, others = Sentence(text), Entities(zone), 0, []
    while at < len(sentence):
        for read in (_span, _day, _wish, _clock, _calendar, _place):
            if end := read(sentence, at, found):
                break
        else:
            others.append(sentence.between(at, end := at + 1))
        at = end
    is_whole = len(text) <= MAX_TEXT_LENGTH and not words_beside_frame(" ".join(others), "time")
    return found if is_whole else None


def _span(sentence: Sentence, at: int, found: Entities) -> int | None:
    """Read "in 3 weeks", "2 hours ago", "10 days before", "the day after"."""
    back, ahead = sentence.after("ago_before", at), sentence.after("in", at)
    duration = duration_at(sentence, sentence.skip("some", back or ahead or at))
    day = sentence.phrase("unit", sentence.after("the", at) or len(sentence))
    if duration is None and day and day[0] == "day" and sentence.phrase("shift", day[1]):
        duration = Duration.of(1, "day"), day[1]
    if duration is None or found.span:
        return None
    length, end = duration
    ago, later = sentence.after("ago", end), sentence.after("from_now", end)
    shift = sentence.phrase("shift", end)
    if not (back or ahead or ago or later or shift):
        return None
    found.span = length
    found.sign = -1 if back or ago or (shift and not later and shift[0] == "before") else 1
    return ago or later or (shift[1] if shift else end)


def _day(sentence: Sentence, at: int, found: Entities) -> int | None:
    """Read "christmas", "the 24th", "last friday"; no part of a day."""
    last = sentence.after("last", at)
    named = day_at(sentence, last or at, is_asked=True)
    if named is None or named[0].part:
        return None
    day, end = named
    after = sentence.after("last_weekday", end)
    found.days.append((replace(day, is_next=True), bool(last or after)))
    return after or end


def _clock(sentence: Sentence, at: int, found: Entities) -> int | None:
    """Read "3pm", "at 9", "noon"; no number alone, which may be anything."""
    named = clock_at(sentence, at)
    told = named[0].time_in() if named and not found.clock else None
    if named is None or told is None or (named[0].bare and not named[0].certainty):
        return None
    found.clock = NamedClock(told[0], at, named[1])
    return named[1]


def _calendar(sentence: Sentence, at: int, found: Entities) -> int | None:
    """Read "2028", "next year", "february", "this month"."""
    word, span = sentence.word(at), sentence.phrase("span", at)
    if len(word) == 4 and word.isdecimal() and int(word) and found.year is None:
        found.year = int(word)
        return at + 1
    if year := sentence.phrase("this_year", at):
        found.years_away = int(year[0])
        return year[1]
    month = span if span and span[0] == "month 0" else sentence.phrase("month", at)
    if month is None or found.month is not None:
        return None
    found.month = int(month[0].removeprefix("month"))
    return month[1]


def _wish(sentence: Sentence, at: int, found: Entities) -> int | None:
    wish = sentence.phrase("wish", at) or sentence.phrase("unit", at)
    if wish is None:
        return None
    if wish[0] == "here":
        found.places.append(NamedPlace("here", found.zone, at, wish[1]))
    found.wishes.add(wish[0])
    return wish[1]


def _place(sentence: Sentence, at: int, found: Entities) -> int | None:
    named = place_at(sentence, at)
    if named is None:
        return None
    place, end = named
    is_clear = sentence.between(at, at + 1).isupper() or sentence.word(at - 1) in ("in", "to")
    if not is_clear and not words_beside_frame(place.name, "time"):
        return None  # "la" and "et" are articles and conjunctions, too
    found.places.append(NamedPlace(f"in {place.name}", ZoneInfo(place.zone), at, end))
    return named[1]
