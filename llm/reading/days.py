"""Days and times of day as people name them: "march 12th", "next friday", "half past six"."""

from __future__ import annotations

import calendar
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date, time, timedelta

from llm.reading.numbers import Duration
from llm.reading.vocabulary import Sentence

_YEARS = range(1, 10_000)  # that a `date` may have
_MAX_CLOCKS = 24  # in a list
_FARTHEST = 450  # days: Fridays the 13th are up to 427 apart


@dataclass(frozen=True, slots=True)
class Day:
    """A day as `words` name it: by its distance from today (`offset`), its `weekday` (0: Monday),
    its date (without a month: any one, in which the `weekday` fits if there is one), a `feast`, or
    as the end of this month (1) or year (12).

    `weeks` are added to the coming weekday; `of_next_week` is the one of the next calendar week,
    and a weekday that `is_next` is not today. `part` is a part of the day, or "". Only a `firm` day
    counts in the middle of a sentence.
    """

    words: str = ""
    offset: int | None = None
    weekday: int | None = None
    weeks: int = 0
    of_next_week: bool = False
    is_next: bool = False
    year: int = 0
    month: int = 0
    day: int = 0
    feast: str = ""
    end_of: int = 0
    part: str = ""
    firm: bool = True

    @property
    def is_of_any_month(self) -> bool:
        """True for a day such as "the 24th"."""
        return bool(self.day) and not self.month

    @property
    def is_weekday(self) -> bool:
        """True for a day such as "next friday"."""
        return self.weekday is not None and not self.day

    def dates(self, today: date, *, past: bool = False) -> Iterator[date]:
        """Yield the dates that it may mean, the nearest first, from `today` on or, with `past`,
        back from it. None for a day that does not exist."""
        sign = -1 if past else 1
        if self.offset is not None:
            yield today + timedelta(days=self.offset)
        elif self.of_next_week:
            yield today + timedelta(days=7 - today.weekday() + (self.weekday or 0))
        elif self.is_weekday:
            assert self.weekday is not None
            ahead = sign * (self.weekday - today.weekday()) % 7
            first = self.weeks + (self.is_next and ahead == 0)
            yield from (today + sign * timedelta(days=ahead + 7 * n) for n in (first, first + 1))
        elif self.end_of:
            yield replace_month(today, 12 if self.end_of == 12 else today.month, 31)
        elif self.month or self.feast:
            # Leap days are up to eight years apart: 1896, 1904.
            years = range(today.year, today.year + 9 * sign, sign)
            for year in (self.year,) if self.year else years:
                found = self._of_year(year) if year in _YEARS else None
                if found and (self.year or sign * (found - today).days >= 0):
                    yield found
        else:
            nearby = (today + sign * timedelta(days=step) for step in range(_FARTHEST))
            for each in nearby:
                if each.day == self.day and self.weekday in (None, each.weekday()):
                    yield each

    def nearest(self, today: date, *, past: bool = False) -> date | None:
        """Return the next such date or, with `past`, the last one; None if there is none. `today`
        itself counts, except for a weekday: "monday" on a Monday is a week away."""
        return next(replace(self, is_next=True).dates(today, past=past), None)

    def _of_year(self, year: int) -> date | None:
        if not self.feast:
            is_day = 1 <= self.month <= 12 and 1 <= self.day <= _last(year, self.month)
            return date(year, self.month, self.day) if is_day else None
        name, sign, days = self.feast.partition("-" if "-" in self.feast else "+")
        if name.isdecimal():
            return date(year, int(name), int(days))
        november = date(year, 11, 1)  # Thanksgiving is its fourth Thursday
        thursday = november + timedelta(days=(3 - november.weekday()) % 7 + 21)
        start = easter(year) if name == "easter" else thursday
        return start + timedelta(days=int(f"{sign}{days}"))


def day_at(sentence: Sentence, at: int, *, is_asked: bool = False) -> tuple[Day, int] | None:
    """Return the day at a position, and the position after it; if one `is_asked` for, also "24.12"
    and "the 24th" without "on"."""
    on = sentence.after("on", at)
    start = at if on is None else on
    preposition = sentence.after("at_feast", at)
    for read in (_date, _near, _weekday, _feast):
        if read is _feast and preposition:
            start, on = preposition, preposition
        is_firm = on is not None or (is_asked and read is _date)
        if found := read(sentence, start, is_firm):
            return replace(found[0], words=sentence.between(start, found[1])), found[1]
    return None


def add_duration(day: date, by: Duration, sign: int = 1) -> date | None:
    """Return `day` shifted by a duration of whole days and months, None if there is no such day."""
    year, month = divmod(day.year * 12 + day.month - 1 + sign * int(by.months), 12)
    try:
        first = replace_month(date(year, 1, 1), month + 1, day.day)
        return first + timedelta(days=sign * int(by.seconds) // 86_400)
    except (ValueError, OverflowError):
        return None


def replace_month(day: date, month: int, number: int) -> date:
    """Return the day `number` of a month of the year of `day`, at most the last one."""
    return date(day.year, month, min(number, _last(day.year, month)))


def _last(year: int, month: int) -> int:
    return calendar.monthrange(year, month)[1]


def easter(year: int) -> date:
    """Return Easter Sunday of a year in the Gregorian calendar.

    The anonymous Gregorian algorithm ("Nature", 20 April 1876), also named after Meeus, Jones and
    Butcher.
    """
    century, rest = divmod(year, 100)
    golden = year % 19
    skipped = century - century // 4 - (century - (century + 8) // 25 + 1) // 3
    epact = (19 * golden + skipped + 15) % 30
    weekday = (32 + 2 * (century % 4) + 2 * (rest // 4) - epact - rest % 4) % 7
    late = (golden + 11 * epact + 22 * weekday) // 451
    month, day = divmod(epact + weekday - 7 * late + 114, 31)
    return date(year, month, day + 1)


def _date(sentence: Sentence, at: int, on: bool) -> tuple[Day, int] | None:
    """Read a date: "2026-12-24", "24.12.", "the 24th of december, 2026", "march 12", "the 24th"."""
    the = sentence.skip("the", at)
    word = sentence.word(the)
    if (named := sentence.phrase("month", the)) is not None:
        start = sentence.skip("the", named[1])
        if (number := sentence.word(start)).isdecimal() and len(number) < 3:
            end = sentence.skip("ordinal", start + 1) if sentence.is_glued(start + 1) else start + 1
            return _with_year(sentence, Day(month=int(named[0]), day=int(number)), end)
    if not word.replace(".", "").replace("-", "").replace("/", "").isdecimal() or len(word) > 10:
        return None
    numbers = [int(part) for part in word.replace("-", ".").replace("/", ".").split(".")]
    has_dot = sentence.word(the + 1) == "." and sentence.is_glued(the + 1)
    end = the + 1 + has_dot
    match numbers:
        case [year, month, day] if word[:4].isdecimal():
            return Day(year=year, month=month, day=day), the + 1
        case [day, month, year] if word[-4:].isdecimal():
            return Day(year=year, month=month, day=day), the + 1
        case [day, month] if has_dot or on:
            return _with_year(sentence, Day(month=month, day=day), end)
        case [day] if len(word) < 3:
            ordinal = sentence.after("ordinal", the + 1) if sentence.is_glued(the + 1) else None
            end = ordinal or end
            of = sentence.skip("of", end)
            if named := sentence.phrase("month", end) or sentence.phrase("month", of):
                return _with_year(sentence, Day(month=int(named[0]), day=day), named[1])
            second = sentence.word(end)
            is_dotted = sentence.is_glued(end + 1) and sentence.word(end + 1) == "."
            if has_dot and second.isdecimal() and len(second) < 3 and is_dotted:
                return _with_year(sentence, Day(month=int(second), day=day), end + 2)
            if on and (ordinal or has_dot):
                return Day(day=day), sentence.skip("of_month", end)
    return None


def _with_year(sentence: Sentence, day: Day, at: int) -> tuple[Day, int]:
    start = at + 1 if sentence.word(at) == "," else sentence.skip("of", at)
    year = sentence.word(start)
    has_year = year.isdecimal() and len(year) == 4
    return (replace(day, year=int(year)), start + 1) if has_year else (day, at)


def _near(sentence: Sentence, at: int, on: bool) -> tuple[Day, int] | None:
    """Read "tomorrow", "today" and the like, also with a part of the day: "tomorrow evening"."""
    if tonight := sentence.phrase("tonight", at):
        return Day(offset=0, part=tonight[0]), tonight[1]
    this = sentence.phrase("this", at)
    if this and this[0] == "this" and (part := sentence.phrase("part", this[1])):
        return Day(offset=0, part=part[0]), part[1]
    near = sentence.phrase("near", at)
    if near is None or sentence.word(at - 1) == "guten":
        return None
    return _with_part(sentence, Day(offset=int(near[0])), near[1])


def _with_part(sentence: Sentence, day: Day, at: int) -> tuple[Day, int]:
    part = sentence.phrase("in_part", at) or sentence.phrase("part", at)
    if part and sentence.may_end(part[1]):
        return replace(day, part=part[0]), part[1]
    return day, at


def _weekday(sentence: Sentence, at: int, on: bool) -> tuple[Day, int] | None:
    """Read a weekday: "next friday", "monday week", "next week on monday", "friday evening"."""
    next_week = sentence.after("next_week", at)
    start = sentence.skip("on", next_week) if next_week else at
    this = sentence.phrase("this", start)
    start = this[1] if this else start
    firm = bool(on or this or next_week)
    named = sentence.phrase("weekday", start)
    if named is None and (named := sentence.phrase("short_weekday", start)) and not firm:
        # "sun" is a weekday only beside other words of time.
        is_time = sentence.word(named[1])[:1].isdecimal() or sentence.phrase("at", named[1])
        named = named if is_time else None
    if named is None:
        return None
    if dated := _date_after(sentence, named[1], int(named[0])):
        return dated
    day, end = _with_part(sentence, Day(weekday=int(named[0]), firm=firm), named[1])
    day = replace(day, of_next_week=bool(next_week), is_next=bool(this and this[0] == "next"))
    if week := sentence.after("next_week", end):
        return replace(day, of_next_week=True, firm=True), week
    week = sentence.after("week_after", end)
    if week and (week > end + 1 or goes_no_further(sentence, week)):
        return replace(day, weeks=1, firm=True), week
    return day, end


def _date_after(sentence: Sentence, at: int, weekday: int) -> tuple[Day, int] | None:
    """Read the date that tells which of the weekdays before it is meant: "saturday the 9th"."""
    start = at + (sentence.word(at) == ",")
    if found := _date(sentence, start, False):
        return _with_part(sentence, *found)
    # "saturday 9.30" and "saturday 9." name a time of day.
    found = _date(sentence, start, True)
    if found is None or not found[0].is_of_any_month:
        return None
    if sentence.word(found[1] - 1) == "." and not sentence.word(found[1]):
        return None
    return _with_part(sentence, replace(found[0], weekday=weekday), found[1])


def _feast(sentence: Sentence, at: int, on: bool) -> tuple[Day, int] | None:
    """Read a feast, "christmas 2027", or the end of a month or year."""
    if end := sentence.phrase("month_end", at):
        return Day(end_of=int(end[0])), end[1]
    if feast := sentence.phrase("feast", at):
        return _with_year(sentence, Day(feast=feast[0], firm=on), feast[1])
    return None


def goes_no_further(sentence: Sentence, at: int) -> bool:
    """Return whether no word follows to which the words before a position may belong, as in "at 5
    main street"."""
    word = sentence.word(at)
    return not word[:1].isalnum() or sentence.phrase("after_time", at) is not None


@dataclass(frozen=True, slots=True)
class ClockTime:
    """A time of day as written. `half` is "a" or "p" for am or pm, `part` a part of the day.

    One `in_words`, "half past six", may be meant before or after noon. Its `certainty` is 2 if it
    is surely a time of day, 1 at the beginning or end of a text, 0 only beside a day; a `bare` one
    is a number alone, as in "at 5". One that `is_choice` follows "or".
    """

    hour: int
    minute: int = 0
    certainty: int = 0
    half: str = ""
    part: str = ""
    in_words: bool = False
    named: bool = False
    bare: bool = False
    is_choice: bool = False

    def time_in(self, part: str = "") -> tuple[time, int] | None:
        """Return the time of day in a part of the day, and the number of days to add to the day:
        "tonight at 1" is tomorrow. None if there is no such time."""
        hour, part = self.hour, self.part or part
        if self.named:
            return time(hour), int(hour == 0 and bool(part))
        if self.half and not 1 <= hour <= 12:
            return None
        if self.half:
            hour = hour % 12 + (12 if self.half == "p" else 0)
        elif part in ("night", "tonight") and (hour == 12 or hour < 5):
            return time(hour % 12, min(self.minute, 59)), 1
        elif part in ("afternoon", "evening", "night", "tonight") and hour <= 12:
            hour = hour % 12 + 12
        return (time(hour, self.minute), 0) if hour < 24 and self.minute < 60 else None


def clocks_at(
    sentence: Sentence, at: int, certainty: int
) -> tuple[Sequence[ClockTime], int] | None:
    """Return the times of day at a position, the first of at least this certainty, and the position
    after them: "at 9, 12 and 17". A comma may precede them."""
    first = clock_at(sentence, at + (sentence.word(at) == ","))
    if first is None or first[0].certainty < certainty:
        return None
    clocks, end = [first[0]], first[1]
    listed, after = list(clocks), end  # those after commas count if it is sure that they are some
    while len(listed) < _MAX_CLOCKS:
        start = after + (sentence.word(after) == ",")
        joint = sentence.phrase("and", start)
        following = clock_at(sentence, joint[1] if joint else start, listed=True)
        if (start == after and joint is None) or following is None:
            break
        after = following[1]
        listed.append(replace(following[0], is_choice=bool(joint and joint[0] == "or")))
        word = sentence.word(after)
        is_end = not word or word in ":;" or sentence.phrase("filling", after) is not None
        if joint or following[0].certainty or is_end:
            clocks, end = list(listed), after
    return clocks, end


def clock_at(sentence: Sentence, at: int, *, listed: bool = False) -> tuple[ClockTime, int] | None:
    """Return the time of day at a position, and the position after it.

    A number in words counts only after "at", or if it is `listed` after another time.
    """
    preposition = sentence.after("at", at)
    start = at if preposition is None else preposition
    certainty = 2 if sentence.phrase("sure_at", at) else int(preposition is not None)
    if named := sentence.phrase("named_clock", start):
        certainty = 2 if sentence.phrase("sure_clock", start) else certainty
        return ClockTime(int(named[0]), certainty=certainty, named=True), named[1]
    if sentence.word(at) == "o" and sentence.word(at - 1).isdecimal():
        return None  # "2 o 3" is a choice in Spanish and Italian
    past = sentence.phrase("past_hour", start)
    number = past[1] if past else start
    hour, _, minute = sentence.word(number).replace(".", ":").partition(":")
    is_minute = not minute or (len(minute) == 2 and minute.isdecimal())
    in_words = sentence.phrase("number", number)
    if in_words and 1 <= int(in_words[0]) <= 12:
        hour, end = in_words
    elif hour.isdecimal() and len(hour) < 3 and is_minute:
        end = number + 1
    else:
        return None
    clock = ClockTime(int(hour), int(minute or 0), certainty, in_words=bool(in_words or past))
    if past:
        minutes = int(past[0])
        certainty = max(certainty, 1) if minutes == -30 else 2  # "halb" may be half of something
        clock = replace(clock, hour=(clock.hour - (minutes < 0)) % 24, minute=minutes % 60)
    is_clear = bool(past) or ":" in sentence.word(number)
    certainty = 2 if ":" in sentence.word(number) else certainty
    if half := sentence.phrase("half", end):
        clock, end, certainty, is_clear = replace(clock, half=half[0]), half[1], 2, True
    elif hours := sentence.phrase("oclock", end) or sentence.phrase("hours", end):
        is_clear, certainty = True, 2 if sentence.phrase("oclock", end) else certainty
        end = hours[1]
        minute = sentence.word(end)
        if minute.isdecimal() and len(minute) == 2 and minute < "60":  # "18 Uhr 30", "18h30"
            clock, end = replace(clock, minute=int(minute)), end + 1
    if not clock.minute and (more := sentence.phrase("after_hour", end)):
        clock, end, is_clear = replace(clock, minute=int(more[0])), more[1], True
    if part := sentence.phrase("in_part", end):
        clock, end, is_clear = replace(clock, part=part[0]), part[1], True
    goes_on = not goes_no_further(sentence, end)
    if not sentence.may_end(end) or (sentence.is_glued(end) and sentence.word(end) in "%€$£"):
        return None
    is_hour = (preposition and clock.hour > 1) or (not goes_on and (preposition or listed))
    if in_words and not is_clear and not is_hour:
        return None
    return replace(clock, certainty=certainty, bare=not is_clear), end
