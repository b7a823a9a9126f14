"""Reconstruction of UTC times from the partial times of log lines, in the context of the lines
before them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, tzinfo

from harnesses.logs.formats.grammar import Timestamp

_MIDNIGHT_JUMP = timedelta(hours=3)  # a clock that goes back by more has passed midnight
_NEW_YEAR_JUMP = timedelta(
    days=180
)  # a date that goes back by more, without a year, is in the next year
_LEAST, _MOST = date(1988, 1, 1), date(9998, 12, 31)  # IRC began in 1988


class DateTracker:
    """The current day while a file is read, in the time zone `zone`. `day` is that of the first
    line, if it is known."""

    def __init__(self, zone: tzinfo, day: date | None) -> None:
        self._zone = zone
        self._day = day
        self._last: datetime | None = None  # local, without zone
        self._moment: datetime | None = None

    def turn_to(self, day: date) -> None:
        """Set the day of the next line."""
        self._day = day
        self._last = None

    def moment(self, when: Timestamp) -> datetime | None:
        """Return the UTC time of the next line, None if its day is unknown or impossible.

        A line without a time has that of the line before. In the hour that is repeated when clocks
        are set back, a clock that goes back is taken to be in the second of the two.
        """
        if when.clock is None:
            return self._moment
        day = self._day_of(when)
        if day is None or not _LEAST <= day <= _MOST:
            return None
        local = datetime.combine(day, when.clock)
        if when.day is None and self._last and local < self._last - _MIDNIGHT_JUMP:
            local += timedelta(days=1)
        zone = UTC if when.utc else self._zone
        self._moment = self._resolve_fold(local, zone).astimezone(UTC)
        self._day, self._last = local.date(), local
        return self._moment

    def _day_of(self, when: Timestamp) -> date | None:
        """Return the day of a line: its own, in the year that follows on the last line if it gives
        none, else the current day."""
        if when.day is None or when.year is not None:
            return when.day or self._day
        if self._day is None:
            return None
        day = _in_year(when.day, self._day.year)
        return _in_year(day, day.year + 1) if day < self._day - _NEW_YEAR_JUMP else day

    def _resolve_fold(self, local: datetime, zone: tzinfo) -> datetime:
        """Return a local time with its zone. Of an ambiguous one return the first, unless only the
        second is not before the last line."""
        # PEP 495: `fold` tells the two apart; for any other time both are the same.
        first = local.replace(tzinfo=zone)
        second = first.replace(fold=1)
        if self._moment is None or first.astimezone(UTC) >= self._moment:
            return first
        return second if second.astimezone(UTC) >= self._moment else first


def _in_year(day: date, year: int) -> date:
    try:
        return day.replace(year=year)
    except ValueError:  # 29 February
        return date(year, 3, 1)
