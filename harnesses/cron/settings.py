"""The tables `[cron]` and `[cron.jobs.NAME]`."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, ClassVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, field_validator

from llm.scheduling.cron_schedule import Timetable, ZoneName
from storage.chat_log.channel_name import ChannelName
from terrarium.config import NamedTable, Settings


def parse_target(text: str) -> ChannelName | Path | str:
    """Return the channel, file or URL to deliver to; a relative path is inside the data folder.
    Raises ValueError, worded for the author of the configuration."""
    if text.startswith("file:") and len(text) > len("file:"):
        return Path(text.removeprefix("file:"))
    if text.startswith(("https://", "http://")):
        if not urlsplit(text).hostname:
            raise ValueError(f'"{text}" is an address without a host')
        return text
    try:
        return ChannelName.parse_channel(text)
    except ValueError as error:
        raise ValueError(
            f'"{text}" is not a place to deliver to; write "#channel", "network/#channel", '
            '"file:PATH" or "https://..."'
        ) from error


def _valid_for(parse: Callable[[str], object]) -> AfterValidator:
    """Return a validator of text that `parse` accepts."""

    def check(text: str) -> str:
        parse(text)
        return text

    return AfterValidator(check)


class JobSettings(NamedTable):
    """One scheduled job."""

    schedule: Annotated[str, _valid_for(lambda text: Timetable.parse(text, "UTC"))] = Field(
        description='when, as a cron expression: "minute hour day-of-month month day-of-week"'
    )
    timezone: ZoneName = Field(
        "UTC", description='time zone of the schedule, by its IANA name ("Europe/Vienna")'
    )
    prompt: str = Field(min_length=1, description="the prompt")
    log: Annotated[str, _valid_for(ChannelName.parse_channel)] | None = Field(
        None,
        description="channel whose log the model is shown; if nobody has spoken there, "
        "the run is skipped",
    )
    hours: int = Field(24, ge=1, le=8_784, description="how far back the log is shown")
    review: bool = Field(
        False,
        description="whether the model scores its text before it is delivered, and rewrites it when"
        " it is weak",
    )
    deliver: Annotated[str, _valid_for(parse_target)] = Field(
        description='where the answer goes: "#channel", "network/#channel", "file:PATH" '
        '(appended; a relative PATH is inside the data folder) or "https://..." (POST of JSON)'
    )
    send_to: tuple[Annotated[str, _valid_for(ChannelName.parse_channel)], ...] = Field(
        (),
        description="channels to which the model may send messages while it does the job, if the"
        " prompt names them",
    )


class CronSettings(Settings):
    """Scheduled jobs."""

    table: ClassVar[str] = "cron"

    jobs: dict[str, JobSettings] = Field(
        default_factory=dict, description="jobs by name, each a table [cron.jobs.NAME]"
    )

    @field_validator("jobs")
    @classmethod
    def _names_fit(cls, jobs: dict[str, JobSettings]) -> dict[str, JobSettings]:
        for name in jobs:
            if not re.fullmatch(r"[\w.-]{1,64}", name):
                raise ValueError(
                    "a job's name has letters, digits, dots, dashes and underscores only"
                )
        return jobs
