"""Spans of past time in plain words: "yesterday", "2 weeks ago", "in march", "since monday"."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta, tzinfo

from llm.reading.days import day_at
from llm.reading.numbers import Duration, duration_at, number_at
from llm.reading.vocabulary import Sentence
from storage.chat_log.event_table import Query

_YEARS = range(1980, 2100)  # "in 2009"; other numbers are no years
_PARTS = {  # hours after midnight; a night ends on the next day
    "": (0, 24),
    "tonight": (0, 24),
    "morning": (0, 12),
    "noon": (11, 14),
    "afternoon": (12, 18),
    "evening": (17, 24),
    "night": (18, 30),
}


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """The time from `since` until `until` (exclusive; aware; None: unbounded), as people wrote it
    in `words`."""

    since: datetime | None = None
    until: datetime | None = None
    words: str = ""

    def __bool__(self) -> bool:
        """Return False for all time, which restricts nothing."""
        return self.since is not None or self.until is not None

    @property
    def phrase(self) -> str:
        """The words with a leading space, to append to a sentence; "" for all time."""
        return f" {self.words}" if self.words else ""

    def narrow(self, query: Query) -> Query:
        """Return `query`, narrowed to this span."""
        sinces = [time for time in (query.since, self.since) if time]
        untils = [time for time in (query.until, self.until) if time]
        return replace(query, since=max(sinces, default=None), until=min(untils, default=None))


ALL_TIME = TimeSpan()

_Ends = tuple[datetime | None, datetime | None]


def time_span(text: str, now: datetime, zone: tzinfo) -> tuple[TimeSpan, str]:
    """Return the time span that a text names, relative to `now` in `zone`, and the text without it.

    Without such words this is ALL_TIME and the whole text.
    """
    sentence, local = Sentence(text), now.astimezone(zone)
    for at in range(len(sentence)):
        if not sentence.may_begin(at):
            continue
        try:
            found = _span_at(sentence, at, local)
        except (ValueError, OverflowError):  # "on 2026-02-31", "5000 years ago"
            continue
        if found and sentence.may_end(found[1]):
            (since, until), end = found
            words = sentence.between(at, end)
            before, after = sentence.matches[at].start(), sentence.matches[end - 1].end()
            rest = " ".join(f"{text[:before].rstrip(' ,')} {text[after:]}".split())
            since, until = since and since.astimezone(UTC), until and until.astimezone(UTC)
            return TimeSpan(since, until, words), rest
    return ALL_TIME, text


def _span_at(sentence: Sentence, at: int, now: datetime) -> tuple[_Ends, int] | None:
    """Return the ends of the span at a position, and the position after it."""
    for read in (_ago, _past, _of_calendar, _day):
        if found := read(sentence, at, now, False):
            return found
    if how := sentence.phrase("since", at):
        for read in (_ago, _of_calendar, _day):
            if found := read(sentence, how[1], now, True):
                since = found[0][0]
                return ((since, None) if how[0] == "since" else (None, since)), found[1]
    return None


def _ago(sentence: Sentence, at: int, now: datetime, bound: bool) -> tuple[_Ends, int] | None:
    """Read "two days ago", "vor 3 Wochen": the whole day for days, else half a unit, plus five
    minutes, before and after. As a bound "3 days" suffices, as in "seit 3 Tagen"."""
    before = sentence.after("ago_before", at)
    start = sentence.skip("some", at if before is None else before)
    if (duration := duration_at(sentence, start)) is None:
        return None
    length, end = duration
    ago = sentence.after("ago", end)
    if ago is None and before is None and not bound:
        return None
    middle = now - length.roughly
    if length.unit == "day":
        return _days(middle, 1), ago or end
    around = length.of_unit / 2 + timedelta(minutes=5)
    return (middle if bound else middle - around, middle + around), ago or end


def _past(sentence: Sentence, at: int, now: datetime, bound: bool) -> tuple[_Ends, int] | None:
    """Read "in the last 3 days", "over the past week", "ces 3 derniers jours"."""
    start = sentence.after("in_the_last", at)
    if start is not None and (unit := sentence.phrase("unit", start)):
        return (now - Duration.of(1, unit[0]).roughly, None), unit[1]
    start = sentence.after("the_last", at) if start is None else start
    if start is None:
        return None
    count = number_at(sentence, start)
    if count and (after := sentence.after("last_after", count[1])):
        unit = sentence.phrase("unit", after)
        return ((now - Duration.of(count[0], unit[0]).roughly, None), unit[1]) if unit else None
    duration = duration_at(sentence, start)
    return ((now - duration[0].roughly, None), duration[1]) if duration else None


def _of_calendar(
    sentence: Sentence, at: int, now: datetime, bound: bool
) -> tuple[_Ends, int] | None:
    """Read "last week", "this year", "last night", "in march 2025", "in 2009"."""
    midnight = _midnight(now)
    if named := sentence.phrase("span", at):
        unit, _, back = named[0].partition(" ")
        if unit == "night":
            return (midnight - timedelta(hours=6), midnight + timedelta(hours=6)), named[1]
        if unit == "week":
            monday = midnight + timedelta(days=7 * int(back) - midnight.weekday())
            return _days(monday, 7), named[1]
        number = midnight.year * 12 + (midnight.month - 1 if unit == "month" else 0)
        size = 1 if unit == "month" else 12
        return _months(midnight, number + size * int(back), size), named[1]
    within = sentence.phrase("within", at)
    if within is None and not bound:
        return None
    start = within[1] if within else at
    month = sentence.phrase("month", start)
    name = sentence.word(start)
    if month and within and within[0] == "this" and sentence.word(month[1]).isalpha():
        return None  # "this may be it"
    if len(name) == 3 and name not in ("may", "mai"):
        return None  # "0x1f in dec"
    end = sentence.skip("of", month[1] + (sentence.word(month[1]) == ",")) if month else start
    year = sentence.word(end)
    has_year = len(year) == 4 and year.isdecimal() and int(year) in _YEARS
    if month:  # without a year the last one that has begun
        number = int(month[0]) - 1
        begun = int(year) if has_year else midnight.year - (number >= midnight.month)
        return _months(midnight, begun * 12 + number, 1), end + 1 if has_year else month[1]
    return (_months(midnight, int(year) * 12, 12), end + 1) if has_year else None


def _day(sentence: Sentence, at: int, now: datetime, bound: bool) -> tuple[_Ends, int] | None:
    """Read "yesterday evening", "last friday", "on 24 december", "2026-03-01"."""
    if hier := sentence.after("french_yesterday", at):  # German has this word too
        is_french = any(sentence.phrase("french", each) for each in range(len(sentence)))
        return (_days(_midnight(now) - timedelta(days=1), 1), hier) if is_french else None
    last = sentence.after("last", at)
    found = day_at(sentence, at if last is None else last)
    if found is None:
        return None
    day, end = found
    if after := sentence.after("last_weekday", end):
        last, end = after, after
    is_near = day.offset is not None and day.offset <= 0
    is_weekday = day.is_weekday and not (day.is_next or day.weeks or day.of_next_week)
    is_named = last is not None or bound or sentence.phrase("on", at) or sentence.phrase("this", at)
    is_iso = bool(day.year) and day.words[:4].isdecimal()
    if not (is_near or is_iso or (is_named and (is_weekday or day.month or day.feast))):
        return None
    date = day.nearest(now.date(), past=True)
    if date is None:
        return None
    midnight = datetime.combine(date, time(), now.tzinfo)
    first, after_last = _PARTS[day.part]
    return (midnight + timedelta(hours=first), midnight + timedelta(hours=after_last)), end


def _midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def _days(start: datetime, count: int) -> _Ends:
    return _midnight(start), _midnight(start) + timedelta(days=count)


def _months(start: datetime, first: int, count: int) -> _Ends:
    """Return the ends of some months, numbered from the year 0 on."""
    ends = [divmod(number, 12) for number in (first, first + count)]
    since, until = (start.replace(year=year, month=month + 1, day=1) for year, month in ends)
    return since, until
