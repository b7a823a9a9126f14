"""Cron expressions in a time zone; one job may have several, separated by ";".

Daylight saving time follows Debian cron: a job at a fixed hour runs once in the night when clocks
go back, and right after the gap in the night when they go forward.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from heapq import merge
from pathlib import Path
from typing import Annotated
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from pydantic import AfterValidator

_FIELDS = "minute hour day-of-month month day-of-week"


@dataclass(frozen=True, slots=True)
class Timetable:
    """The run times of one job. Create it with `parse`; all datetimes are timezone-aware."""

    expression: str
    zone: tzinfo

    @classmethod
    def parse(cls, expression: str, zone: str) -> Timetable:
        """Validate an expression and the name of a zone. Raises ValueError with a message that
        explains the mistake in the configuration."""
        table = cls(expression, parse_zone(zone))
        if any(len(each.split()) != 5 for each in expression.split(";")):
            raise ValueError(f'"{expression}" does not have the five fields {_FIELDS}')
        try:
            coming = next(table._times(datetime.now(UTC)), None)
        except CronSimError as error:
            raise ValueError(f'"{expression}" is not a cron expression: {error}') from error
        if coming is None:
            raise ValueError(f'"{expression}" names a time that never comes')
        return table

    def after(self, time: datetime) -> datetime:
        """Return the first run time, in UTC, that is later than `time`."""
        # CronSim may begin with an earlier time when `time` is in the second, repeated hour of the
        # night when clocks go back.
        return next(due for due in self._times(time) if due > time)

    def due(self, last: datetime, now: datetime) -> datetime:
        """Return the run time, in UTC, that follows the run of `last`.

        If runs have been missed, it is the newest of them, so that only one is made up for;
        otherwise it is the next one, later than `now`.
        """
        coming = self.after(last)
        if coming > now:
            return coming
        # One second later, as the start itself is excluded and a time that is exactly now is due.
        back = self._times(now + timedelta(seconds=1), reverse=True)
        # In the repeated hour the search backwards may skip `coming` for an earlier time.
        return max(coming, next(back, coming))

    def _times(self, start: datetime, *, reverse: bool = False) -> Iterator[datetime]:
        local = start.astimezone(self.zone)
        tables = [
            (due.astimezone(UTC) for due in CronSim(each, local, reverse=reverse))
            for each in self.expression.split(";")
        ]
        yield from merge(*tables, reverse=reverse)


def parse_zone(name: str) -> tzinfo:
    """Return a time zone by its IANA name. Raises ValueError with a message for people."""
    if name.upper() == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(
            f'"{name}" is not a time zone that this system knows; write one like "Europe/Vienna"'
        ) from error


def system_zone() -> str:
    """Return the IANA name of the system's time zone, "UTC" if it cannot be determined.

    Looks at TZ, /etc/timezone and the target of the link /etc/localtime, in this order.
    """
    found = [os.environ.get("TZ", "").removeprefix(":")]
    with suppress(OSError, ValueError):
        found.append(Path("/etc/timezone").read_text(encoding="utf-8").strip().partition("\n")[0])
    with suppress(OSError, RuntimeError):  # such as /usr/share/zoneinfo/Europe/Vienna
        link = Path("/etc/localtime").resolve(strict=True)
        found.append(str(link).partition("zoneinfo/")[2])
    name = next((name for name in found if name and is_zone(name)), "UTC")
    return "UTC" if name in ("Etc/UTC", "Etc/UCT", "UCT", "Universal", "Zulu") else name


def is_zone(name: str) -> bool:
    """Return whether a time zone has that name."""
    try:
        parse_zone(name)
    except ValueError:
        return False
    return True


ZoneName = Annotated[str, AfterValidator(lambda name: parse_zone(name) and name)]
"""A setting that is the name of a time zone."""
