"""Times in plain words: "in 20 minutes", "every monday at 9", "vendredi à 18h", "w piątek o 18".

The time may precede, follow or interrupt the text of a reminder. Examples:

    in 20 minutes     10m     in 1h30     in half an hour     in an hour and a half
    at 18:00     at 6pm     at noon     half past six     18 Uhr     at 8 in the evening
    tomorrow     tomorrow at 9     tonight at 8     next friday at 5pm     on the 24th at 18:00
    2026-12-24 18:00     on 24 December     am 24.12. um 18 Uhr     übermorgen     monday week
    every day at 9 and 17:30     every weekday at 8:30     every monday and thursday
    every 2 hours     every month on the 5th     every weekend

A day without a time of day means 9:00, or the time that stands for its part of the day.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from llm.reading.days import (
    ClockTime,
    Day,
    add_duration,
    clock_at,
    clocks_at,
    day_at,
    goes_no_further,
)
from llm.reading.numbers import Duration, count_at, duration_at, number_at
from llm.reading.vocabulary import MAX_TEXT_LENGTH, Sentence
from llm.scheduling.cron_schedule import Timetable

EXAMPLE_TIMES = (
    "in 20 minutes, 10m, in half an hour, at 18:00, at 6pm, tomorrow at 9, tonight at 8,"
    " next friday at 5pm, on the 24th at 18:00, 2026-12-24 18:00, every day at 9,"
    " every weekday at 8:30, every monday and thursday at 9, every hour"
)
"""Examples of the supported forms, for messages to people."""

EXAMPLE_RECURRENCES = (
    "every day at 9, every weekday at 8:30, every weekend, every monday and thursday,"
    " every month on the 5th, every 3 months, every hour, every 2 hours"
)
"""Examples of the recurrences that cron can express, for messages to people."""

MAX_DISTANCE = timedelta(days=366)
"""The furthest a time may lie in the future."""

_PARTS: Mapping[str, time] = {  # of the day, and the time that stands for them
    "": time(9),
    "morning": time(9),
    "noon": time(12),
    "afternoon": time(15),
    "evening": time(19),
    "tonight": time(20),
    "night": time(21),
}
_VAGUE = ("vague", "next_week")  # categories of words that name no day: "next month"
_NO_RECURRENCE = f"I cannot repeat that. I can repeat, for example: {EXAMPLE_RECURRENCES}."
_ONE_TIME = (
    "That is more than one time. Set a reminder for each, or repeat one, as in: every day at 9 and"
    " 17, every monday and friday at 8."
)
_NO_DAY = "On which day is that? Write for example: next monday at 9, on the 3rd at 18:00."


class NotUnderstood(ValueError):
    """The text has no known form of a time, or an impossible one; the message is for its author."""


@dataclass(frozen=True, slots=True)
class ResolvedTime:
    """The (first) time, in UTC, and the cron expression `rule` of a recurring one."""

    due: datetime
    rule: str = ""


@dataclass(frozen=True, slots=True)
class _Every:
    """A recurrence: each `step`th `unit` (0: a step that is no number); `days` are the days of the
    week, as in cron, `nth` is a day of the month, `part` one of the day."""

    unit: str
    step: int = 1
    days: str = ""
    nth: int = 0
    part: str = ""


@dataclass(frozen=True, slots=True)
class _Time:
    """The parts of a time in the tokens [start, end); `joined` to another one by "and" or "or"."""

    start: int
    end: int
    day: Day | None = None
    clocks: Sequence[ClockTime] = ()
    wait: Duration | None = None
    every: _Every | None = None
    joined: bool = False
    firm: bool = True


def parse_time(text: str, now: datetime, zone: tzinfo) -> tuple[ResolvedTime, str]:
    """Return the time that `text` names, relative to `now` in `zone`, and the text without it.

    Raises NotUnderstood, also for a time that has passed or is further away than `MAX_DISTANCE`.
    """
    if len(text) > MAX_TEXT_LENGTH:
        raise NotUnderstood(f"That is too long: write at most {MAX_TEXT_LENGTH} characters.")
    sentence = Sentence(" ".join(text.split()))
    found, rest = _split(sentence)
    if found is None:
        raise NotUnderstood(_why_not(sentence))
    if found.every is None and _is_recurrent(sentence):
        raise NotUnderstood(_NO_RECURRENCE)
    if found.joined or (len(found.clocks) > 1 and found.every is None):
        raise NotUnderstood(_ONE_TIME)
    is_week = found.day and found.day.is_weekday and sentence.word(found.end) == "week"
    is_vague = any(sentence.follows(each, found.start) for each in _VAGUE)
    if is_week or is_vague or any(sentence.phrase(each, found.end) for each in _VAGUE):
        raise NotUnderstood(_NO_DAY)
    rule = ""
    if found.every:
        rule = _rule(found, found.every, now.astimezone(zone))
        due = Timetable(rule, zone).after(now)
    elif found.wait:
        due = _later(found.wait, found.clocks, now.astimezone(zone))
    else:
        due = _once(found, now, zone)
    if not now < due <= now + MAX_DISTANCE:
        raise NotUnderstood("That time has passed, or is more than a year away.")
    return ResolvedTime(due, rule), rest


def without_time(text: str) -> str | None:
    """Return a text without the time that `parse_time` finds in it, None if it finds none."""
    if len(text) > MAX_TEXT_LENGTH:
        return None
    found, rest = _split(Sentence(" ".join(text.split())))
    return rest if found else None


def _why_not(sentence: Sentence) -> str:
    """Return why a sentence has no time, for its author."""
    if _is_recurrent(sentence) and _every_at(sentence, 0) is None:
        return _NO_RECURRENCE
    if any(sentence.phrase(each, at) for at in range(len(sentence)) for each in _VAGUE):
        return _NO_DAY
    if any(sentence.phrase("past", at) for at in range(len(sentence))):
        return "That time has passed."
    for at in range(len(sentence)):
        if (clock := clock_at(sentence, at)) and clock[0].bare and clock[0].certainty:
            number = sentence.word(clock[1] - 1)
            return f"Is {number} a time of day there? Write it as 9:00, 9am or 17:00."
    return f"I understand times like these: {EXAMPLE_TIMES}."


def _is_recurrent(sentence: Sentence) -> bool:
    every = sentence.phrase("every", 0)
    return every is not None and every[0] == "firm" and sentence.word(1) != "of"


def _split(sentence: Sentence) -> tuple[_Time | None, str]:
    """Return the time in a sentence, None without one, and the text around it.

    It stands at the beginning, else at the end, else anywhere in the sentence; a mere time of day
    at the end yields to a day with its time: "tell all tomorrow at 17:30 that we begin at six". A
    day may have its time of day elsewhere, and the other way round: "tomorrow call mum at 9".
    """
    times = [time for at in range(len(sentence)) if (time := _time_at(sentence, at))]
    tail = len(sentence)  # the position of the final punctuation and courtesies
    while tail and (sentence.word(tail - 1) in ",;:?!-." or sentence.follows("courtesy", tail)):
        tail -= 1
    trailing = [time for time in times if time.end >= tail]
    firm = [time for time in times if time.firm]
    whole = [time for time in firm if time.day and time.clocks]
    if trailing and trailing[0].clocks and not (trailing[0].day or trailing[0].every):
        trailing = whole[:1] or trailing
    places = ([t for t in times[:1] if t.start == 0], trailing, firm)
    found = next((place[0] for place in places if place), None)
    if found is None or sentence.phrase("past", found.end) or sentence.follows("past", found.start):
        return None, sentence.text
    other = None
    if bool(found.clocks) != bool(found.day or found.every) and found.wait is None:
        for time in times:
            apart = time.start >= found.end or time.end <= found.start
            fits = time.wait is None and bool(found.clocks) != bool(time.clocks)
            if apart and fits and (time.firm or time in trailing) and not time.joined:
                other = time
                break
    at = sentence.skip("at", end := found.end + (sentence.word(found.end) == ","))
    is_unknown = at > end and sentence.word(at)[:1].isdecimal() and not found.clocks
    if is_unknown and not found.wait and (other is None or other.start != end):
        return None, sentence.text  # "tomorrow at 1800"
    gaps = [found] if other is None else [found, other]
    if other:
        found = replace(
            found,
            clocks=found.clocks or other.clocks,
            day=found.day or other.day,
            every=found.every or other.every,
        )
    return found, _text_around(sentence, gaps, tail)


def _text_around(sentence: Sentence, gaps: Sequence[_Time], tail: int) -> str:
    """Return the text around some times, without its first filling words and last courtesies."""
    size = len(sentence)
    has_courtesy = any(sentence.word(at).isalpha() for at in range(tail, size))
    end = tail if has_courtesy or any(gap.end >= tail for gap in gaps) else size
    kept = [at for at in range(end) if not any(gap.start <= at < gap.end for gap in gaps)]
    first = 0
    while kept[first:]:
        at = kept[first]
        after = sentence.after("filling", at)
        if sentence.word(at) in ",:;-":
            first += 1
        elif after and (not sentence.is_glued(after) or sentence.word(after) == ","):
            first += after - at
        elif sentence.word(at) == "an" and sentence.phrase("an_article", at + 1):
            first += 1
        else:
            break
    runs: list[list[int]] = []
    for at in kept[first:]:
        if runs and runs[-1][-1] == at - 1:
            runs[-1].append(at)
        elif not runs or sentence.word(at) not in ",;":
            runs.append([at])
    return " ".join(sentence.between(run[0], run[-1] + 1) for run in runs).rstrip(" ,;:-")


def _time_at(sentence: Sentence, at: int) -> _Time | None:
    """Return the time at a position, together with another one that is joined to it."""
    time = _one_time_at(sentence, at) if sentence.may_begin(at) else None
    if time is None:
        return None
    joint = sentence.phrase("and", time.end + (sentence.word(time.end) == ","))
    start = sentence.skip("again", joint[1]) if joint else 0
    other = _one_time_at(sentence, start) if joint else None
    if other is None and joint and (end := _ordinal_at(sentence, start)):
        other = _Time(start, end)
        if clocks := clocks_at(sentence, end, 1):
            other = _Time(start, clocks[1])
    return replace(time, end=other.end, joined=True) if other else time


def _one_time_at(sentence: Sentence, at: int) -> _Time | None:
    for read in (_every_time, _wait_time, _clock_time, _day_time):
        if (time := read(sentence, at)) and sentence.may_end(time.end):
            return time
    return None


def _every_time(sentence: Sentence, at: int) -> _Time | None:
    """Read "every day at 9 and 17", "weekly on monday at 9"."""
    if (every := _every_at(sentence, at)) is None:
        return None
    clocks, end = clocks_at(sentence, every[1], 1) or ((), every[1])
    return _Time(at, end, None, clocks, every=every[0])


def _wait_time(sentence: Sentence, at: int) -> _Time | None:
    """Read "in 20 minutes", "in 3 days at 9", "2 hours from now" and, first of all, "10m"."""
    start = sentence.after("in", at)
    duration = duration_at(sentence, at if start is None else start)
    if duration is None:
        return None
    wait, end = duration
    if start is None and (later := sentence.after("from_now", end)):
        return _Time(at, later, wait=wait)
    if start is None:
        is_article = sentence.word(at) in ("a", "an") and wait.unit not in ("hour", "minute")
        if at or is_article or sentence.phrase("no_wait", end):
            return None
        return _Time(at, end, wait=wait, firm=False)
    clocks, end = (clocks_at(sentence, end, 1) if wait.is_of_days else None) or ((), end)
    return _Time(at, end, None, clocks, wait=wait)


def _clock_time(sentence: Sentence, at: int) -> _Time | None:
    """Read "at 18:00", "at 9 and 17 every weekday", "at 9 tomorrow"."""
    if (clocks := clocks_at(sentence, at, 1)) is None:
        return None
    times, end = clocks
    is_last = at == 0 or goes_no_further(sentence, end)
    firm = times[0].certainty == 2 and (is_last or not times[0].bare)
    time = _Time(at, end, None, times, firm=firm)
    start = end + (sentence.word(end) == ",")
    if every := _every_at(sentence, start):
        return replace(time, end=every[1], every=every[0], firm=True)
    day = day_at(sentence, start)
    if day and (day[0].firm or goes_no_further(sentence, day[1])) and (day[0].offset or 0) >= 0:
        return replace(time, end=day[1], day=day[0], firm=True)
    return time


def _day_time(sentence: Sentence, at: int) -> _Time | None:
    """Read "tomorrow", "2026-12-24T18:00", "on the 24th at 18:00", "monday 9:30"."""
    day = day_at(sentence, at)
    # "presents for christmas" says for what, and not when.
    if day is None or (day[0].offset or 0) < 0 or (day[0].feast and not day[0].firm):
        return None
    named, end = day
    start = end + (sentence.word(end) == "t" and sentence.is_glued(end))
    clocks = clocks_at(sentence, start, 0)
    if clocks and clocks[0][0].certainty == 0 and at and not goes_no_further(sentence, clocks[1]):
        clocks = None
    times, end = clocks or ((), end)
    return _Time(at, end, named, times, firm=named.firm)


def _every_at(sentence: Sentence, at: int) -> tuple[_Every, int] | None:
    """Return the recurrence at a position, and the position after it: "every month on the 5th"."""
    found = _every_unit(sentence, at) or _adverb(sentence, at)
    if found is None or sentence.phrase("and_half", found[1]) or not sentence.may_end(found[1]):
        return None
    every, end = found
    if part := sentence.phrase("in_part", end) or sentence.phrase("part", end):
        every, end = replace(every, part=part[0]), part[1]
    start = sentence.skip("the", on) if (on := sentence.after("on", end)) else end
    if on and (nth := _ordinal_at(sentence, start)):
        return replace(every, nth=int(sentence.word(start))), nth
    if on and sentence.phrase("step", start):  # "every month on the last day"
        return replace(every, step=0), end
    if on and (days := _weekdays_at(sentence, start)):
        return replace(every, days=days[0]), days[1]
    return every, end


def _every_unit(sentence: Sentence, at: int) -> tuple[_Every, int] | None:
    if (start := sentence.after("every", at)) is None:
        return None
    number, nth = number_at(sentence, start), _ordinal_at(sentence, start)
    step = sentence.phrase("step", start) or number or count_at(sentence, start)
    count, after = step or (1, start)
    if step and step == count_at(sentence, start) != number:
        count = 0  # "few"
    every = _Every("day", int(count) if int(count) == float(count) else 0)
    after = nth or after
    if unit := sentence.phrase("unit", after) or (number and sentence.phrase("short_unit", after)):
        return replace(every, unit=unit[0]), unit[1]
    if days := sentence.phrase("days", after) or _weekdays_at(sentence, after):
        return replace(every, days=days[0]), days[1]
    if part := sentence.phrase("part", after):
        return replace(every, part=part[0]), part[1]
    return (_Every("month", nth=int(count)), sentence.skip("of_month", nth)) if nth else None


def _adverb(sentence: Sentence, at: int) -> tuple[_Every, int] | None:
    """Read "daily", "on mondays and fridays"."""
    if adverb := sentence.phrase("adverb", at):
        # "at 9 weekly meeting" is no recurrence.
        is_alone = goes_no_further(sentence, adverb[1]) or (at == 0 and adverb[0] != "year")
        return (_Every(adverb[0]), adverb[1]) if is_alone else None
    start = sentence.skip("on", at)
    if sentence.phrase("weekdays", start) is None:
        return None
    days = _weekdays_at(sentence, start)
    return (_Every("day", days=days[0]), days[1]) if days else None


def _weekdays_at(sentence: Sentence, at: int) -> tuple[str, int] | None:
    """Return weekdays, numbered as in cron, and the position after them: "monday, tue and fri"."""
    days: list[str] = []
    start = end = at
    while True:
        if many := sentence.phrase("weekdays", start):
            value, end = many
        elif one := sentence.phrase("weekday", start) or sentence.phrase("short_weekday", start):
            value, end = str(int(one[0]) + 1), one[1]
        else:
            return (",".join(days), end) if days else None
        days.append(value)
        start = sentence.skip("and", end + (sentence.word(end) == ","))
        if start == end:
            return ",".join(days), end


def _ordinal_at(sentence: Sentence, at: int) -> int | None:
    """Return the position after a day of the month, "3rd" or "3.", None if there is none."""
    is_day = sentence.word(at).isdecimal() and 1 <= int(sentence.word(at)[:3]) <= 31
    if not is_day or not sentence.is_glued(at + 1):
        return None
    return at + 2 if sentence.word(at + 1) == "." else sentence.after("ordinal", at + 1)


def _later(wait: Duration, clocks: Sequence[ClockTime], local: datetime) -> datetime:
    if local.tzinfo and wait.is_of_days and (wait.months or clocks):
        day = add_duration(local.date(), wait)
        clock = _time_of(clocks[0], "")[0] if clocks else local.time()
        return _at(day, clock, local.tzinfo) if day else local.astimezone(UTC)
    # Capped, as a larger sum would overflow, and 0 for a part of a month, which has no fixed
    # length: `parse_time` refuses both.
    seconds = min(float(wait.seconds), 1e9) if not wait.months else 0.0
    return local.astimezone(UTC) + timedelta(seconds=seconds)


def _once(found: _Time, now: datetime, zone: tzinfo) -> datetime:
    """Return the next time that fits a day and a time of day."""
    today, day = now.astimezone(zone).date(), found.day
    clock, later = time(9), 0
    if found.clocks:
        clock, later = _time_of(found.clocks[0], day.part if day else "")
    elif day:
        clock = _PARTS[day.part]
    if day is None:
        # The next occurrence. "half past six" may mean either half of the day.
        either = found.clocks[0].in_words and not found.clocks[0].half and clock.hour < 12
        either = either and not found.clocks[0].part
        hours = (clock.hour, clock.hour + 12) if either else (clock.hour,)
        todays = [_at(today, clock.replace(hour=hour), zone) for hour in hours]
        coming = [first for first in todays if first > now]
        return min(coming) if coming else _at(today + timedelta(days=1), clock, zone)
    if not found.clocks and not day.part and day.offset == 0:
        raise NotUnderstood("At what time today? Write for example: today at 18:00.")
    due = None
    for each in day.dates(today):
        # Clamped, as conversion to UTC could overflow; `parse_time` refuses either end anyway.
        each = max(date(1970, 1, 2), min(each, date(9000, 1, 1)))
        due = _at(each + timedelta(days=later), clock, zone)
        if due > now or not (day.is_weekday or day.is_of_any_month):
            return due
    raise NotUnderstood(f"{day.words} is not a date." if due is None else "That time has passed.")


def _time_of(clock: ClockTime, part: str) -> tuple[time, int]:
    """Return the time of day in a part of the day. Raises NotUnderstood."""
    if (found := clock.time_in(part)) is None:
        said = f"{clock.hour} {clock.half}m" if clock.half else f"{clock.hour}:{clock.minute:02}"
        raise NotUnderstood(f"{said} is not a time of day.")
    return found


def _at(day: date, clock: time, zone: tzinfo) -> datetime:
    return datetime.combine(day, clock, zone).astimezone(UTC)


def _rule(found: _Time, every: _Every, local: datetime) -> str:
    """Return the cron expression of a recurrence. Raises NotUnderstood."""
    # The fields of a cron expression start anew with each day, month and year, so that an interval
    # must divide them: 24 hours and 12 months. Days and weeks divide neither months nor years.
    whole = {"hour": 24, "month": 12, "day": 1, "week": 1}.get(every.unit, 0)
    if every.step < 1 or not whole or whole % every.step or every.nth > 31:
        raise NotUnderstood(_NO_RECURRENCE)
    if any(clock.is_choice for clock in found.clocks):
        raise NotUnderstood(_ONE_TIME)
    times = [_time_of(clock, every.part)[0] for clock in found.clocks] or [_PARTS[every.part]]
    if every.unit == "hour":
        start = times[0] if found.clocks else local.time()
        if len(times) > 1 or every.days or every.nth:
            raise NotUnderstood(_NO_RECURRENCE)
        return f"{start.minute} {_field(start.hour, 0, 23, every.step)} * * *"
    # In "at 8 and 10 pm" the first may be either.
    is_unclear = [
        not clock.half and not clock.named and 1 <= each.hour <= 12
        for clock, each in zip(found.clocks, times, strict=False)
    ]
    if any(is_unclear) and any(clock.half for clock in found.clocks):
        raise NotUnderstood("Say am or pm with each time, as in: every day at 8am and 10pm.")
    days = f"* * {every.days}" if every.days else "* * *"
    if every.unit == "week" and not every.days:
        days = f"* * {local.isoweekday()}"
    if every.unit == "month" or every.nth:
        if every.days:  # "every month on monday" does not say on which one
            raise NotUnderstood(_NO_RECURRENCE)
        # At most the 28th, which every month has: cron skips months without the day.
        days = f"{every.nth or min(local.day, 28)} {_field(local.month, 1, 12, every.step)} *"
    minutes, hours = sorted({each.minute for each in times}), sorted({each.hour for each in times})
    if len(set(times)) == len(minutes) * len(hours):
        return f"{','.join(map(str, minutes))} {','.join(map(str, hours))} {days}"
    return "; ".join(f"{each.minute} {each.hour} {days}" for each in sorted(set(times)))


def _field(value: int, first: int, last: int, step: int) -> str:
    """Return the cron field from `first` to `last` with every `step`th value, `value` among them;
    "*" for all."""
    return "*" if step == 1 else f"{first + (value - first) % step}-{last}/{step}"
