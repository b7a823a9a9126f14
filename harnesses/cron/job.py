"""A job, with everything that its settings stand for worked out."""

from __future__ import annotations

from dataclasses import dataclass

from harnesses.cron.delivery import Delivery
from harnesses.cron.digest import LogExcerpt
from llm.scheduling.cron_schedule import Timetable


@dataclass(frozen=True, slots=True)
class CronJob:
    """What to do, when, and where the outcome goes."""

    name: str
    timetable: Timetable
    prompt: str
    source: LogExcerpt | None
    delivery: Delivery
    review: bool = False
