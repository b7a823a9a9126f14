"""Spans of the past in words: "yesterday", "in march", "two weeks ago", "since last month"."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta, tzinfo

from storage.chat_log.query import Query

_MONTH_NAMES = (
    "january february march april may june july august september october november december"
)
_MONTHS = _MONTH_NAMES.split()
_DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_NUMBERS = {
    "a": 1, "an": 1, "one": 1, "two": 2, "a couple of": 2, "three": 3, "a few": 3, "few": 3,
    "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "twelve": 12,
}  # fmt: skip
_LENGTHS = {
    "minute": timedelta(minutes=1), "hour": timedelta(hours=1), "day": timedelta(days=1),
    "week": timedelta(weeks=1), "month": timedelta(days=30.5), "year": timedelta(days=365.25),
}  # fmt: skip
_COUNT = (
    r"(?P<count>\d{1,4}|a couple of|a few|few|an?|one|two|three|four|five|six|seven|eight|nine|ten|"
    r"twelve)"
)
_UNIT = r"(?P<unit>minute|hour|day|week|month|year)s?"
_MONTH = rf"(?P<month>{'|'.join(_MONTHS)})"
_YEAR = r"(?P<year>(?:19[89]|20\d)\d)"
# In order of precedence: "since last week" is tried before "last week".
_SPAN_FORMS = [
    (kind, re.compile(rf"(?:^|(?<=\s)),?\s*(?:{pattern})(?=[\s,?!.]|$)", re.IGNORECASE))
    for kind, pattern in (
        ("ago", rf"(?:about |some )?{_COUNT} {_UNIT} ago"),
        ("past", rf"(?:in|within|during|over) the (?:last|past) (?:{_COUNT} )?{_UNIT}"),
        ("date", r"(?:on )?(?P<date>\d{4}-\d\d-\d\d)"),
        ("month", rf"(?P<how>in|since|during|before|last|this|back in) {_MONTH}"
                  rf"(?:,? (?:of )?{_YEAR})?"),
        ("year", rf"(?P<how>in|since|during|before|back in) {_YEAR}"),
        ("since", r"since (?P<named>yesterday|last week|last month|last year|this morning)"),
        ("named", r"(?P<named>yesterday|today|tonight|this morning|last night|"
                  r"(?:last|this) (?:week|month|year)|(?:the )?day before yesterday)"),
        ("weekday", rf"(?:on|last|this) (?P<day>{'|'.join(_DAYS)})"),
    )
]  # fmt: skip


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

    def within(self, query: Query) -> Query:
        """Return `query`, narrowed to this span."""
        sinces = [time for time in (query.since, self.since) if time]
        untils = [time for time in (query.until, self.until) if time]
        return replace(query, since=max(sinces, default=None), until=min(untils, default=None))


ALL_TIME = TimeSpan()


def time_span(text: str, now: datetime, zone: tzinfo) -> tuple[TimeSpan, str]:
    """Return the time span that a text names, relative to `now` in `zone`, and the text without it.

    Without such words this is ALL_TIME and the whole text.
    """
    for kind, pattern in _SPAN_FORMS:
        match = pattern.search(text)
        if match is None:
            continue
        try:
            since, until = _ends(kind, match.groupdict(), now.astimezone(zone))
        except (ValueError, OverflowError):  # "on 2026-02-31", "5000 years ago"
            continue
        rest = " ".join(f"{text[: match.start()]} {text[match.end() :]}".split())
        words = match[0].strip(" ,")
        span = TimeSpan(since and since.astimezone(UTC), until and until.astimezone(UTC), words)
        return span, rest
    return ALL_TIME, text


def _ends(
    kind: str, named: dict[str, str | None], now: datetime
) -> tuple[datetime | None, datetime | None]:
    """Return the start of a span and its exclusive end. Raises ValueError and OverflowError."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    match kind:
        case "ago":
            return _ago(_number(named["count"]), named["unit"] or "", now)
        case "past":
            return now - _number(named["count"] or "one") * _LENGTHS[
                (named["unit"] or "").lower()
            ], None
        case "date":
            day = datetime.fromisoformat(named["date"] or "").replace(tzinfo=now.tzinfo)
            return day, day + timedelta(days=1)
        case "month" | "year":
            return _calendar(named, midnight)
        case "since":
            return _named_span((named["named"] or "").lower(), midnight)[0], None
        case "weekday":  # on a Monday, "on monday" is a week ago
            back = (now.weekday() - _DAYS.index((named["day"] or "").lower())) % 7 or 7
            return midnight - timedelta(days=back), midnight - timedelta(days=back - 1)
    return _named_span((named["named"] or "").lower(), midnight)


def _number(text: str | None) -> int:
    word = (text or "").lower()
    return int(word) if word.isdigit() else _NUMBERS[word]


def _ago(count: int, unit: str, now: datetime) -> tuple[datetime, datetime]:
    """Return the span around so long ago: the whole day for days, else half a unit, plus five
    minutes, before and after."""
    length = _LENGTHS[unit.lower()]
    if unit.lower() == "day":
        day = (now - count * length).replace(hour=0, minute=0, second=0, microsecond=0)
        return day, day + length
    middle = now - count * length
    return middle - length / 2 - timedelta(minutes=5), middle + length / 2 + timedelta(minutes=5)


def _calendar(
    named: dict[str, str | None], midnight: datetime
) -> tuple[datetime | None, datetime | None]:
    """Return a month or a year as a span; a month without a year is the last one that has begun."""
    how = (named["how"] or "").lower()
    first = midnight.replace(day=1)
    if name := named.get("month"):
        month = _MONTHS.index(name.lower()) + 1
        year = int(named.get("year") or 0) or midnight.year - (month > midnight.month)
        since = first.replace(year=year, month=month)
        until = _next_month(since)
    else:
        since = first.replace(year=int(named["year"] or 0), month=1)
        until = since.replace(year=since.year + 1)
    if how == "since":
        return since, None
    return (None, since) if how == "before" else (since, until)


def _next_month(first: datetime) -> datetime:
    return (first + timedelta(days=32)).replace(day=1)  # no month has 32 days


def _named_span(name: str, midnight: datetime) -> tuple[datetime, datetime]:
    day = timedelta(days=1)
    monday, first = midnight - midnight.weekday() * day, midnight.replace(day=1)
    last_month = (first - day).replace(day=1)
    spans = {
        "yesterday": (midnight - day, midnight),
        "today": (midnight, midnight + day),
        "tonight": (midnight, midnight + day),
        "this morning": (midnight, midnight + day / 2),
        "last night": (midnight - day / 4, midnight + day / 4),
        "last week": (monday - 7 * day, monday),
        "this week": (monday, monday + 7 * day),
        "last month": (last_month, first),
        "this month": (first, _next_month(first)),
        "last year": (first.replace(year=first.year - 1, month=1), first.replace(month=1)),
        "this year": (first.replace(month=1), first.replace(year=first.year + 1, month=1)),
    }
    return spans.get(name, (midnight - 2 * day, midnight - day))  # the day before yesterday
