"""The tables `[cron]` and `[cron.jobs.NAME]`."""

from __future__ import annotations

import difflib
import re
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from harnesses.cron.target import parse_channel, parse_target
from llm.scheduling.cron_schedule import Timetable, ZoneName
from terrarium.config import Settings


def _channel(text: str) -> str:
    parse_channel(text)
    return text


def _target(text: str) -> str:
    parse_target(text)
    return text


def _expression(text: str) -> str:
    Timetable.parse(text, "UTC")
    return text


def _name(text: str) -> str:
    if not re.fullmatch(r"[\w.-]{1,64}", text):
        raise ValueError("a job's name has letters, digits, dots, dashes and underscores only")
    return text


class JobSettings(BaseModel):
    """One scheduled job."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    schedule: Annotated[str, AfterValidator(_expression)] = Field(
        description='when, as a cron expression: "minute hour day-of-month month day-of-week"'
    )
    timezone: ZoneName = Field(
        "UTC", description='time zone of the schedule, by its IANA name ("Europe/Vienna")'
    )
    prompt: str = Field(min_length=1, description="what the model is asked")
    log: Annotated[str, AfterValidator(_channel)] | None = Field(
        None,
        description="channel whose log the model is shown; when nobody said anything there, "
        "the job is left out this time",
    )
    hours: int = Field(24, ge=1, le=8_784, description="how far back the log is shown")
    lines: int = Field(
        5_000,
        ge=1,
        le=5_000,
        description="how many lines that people said are shown at most, as far as they fit into"
        " the model's window",
    )
    review: bool = Field(
        False,
        description="whether the model scores its text before it is delivered, and rewrites it when"
        " it is weak",
    )
    deliver: Annotated[str, AfterValidator(_target)] = Field(
        description='where the answer goes: "#channel", "network/#channel", "file:PATH" '
        '(appended; a relative PATH is inside the data folder) or "https://..." (POST of JSON)'
    )

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, values: Any) -> Any:
        known = list(cls.model_fields)
        for key in values if isinstance(values, dict) else ():
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1, cutoff=0.0)[0]
                raise ValueError(f'unknown key "{key}"; the nearest known key is "{near}"')
        return values


class CronSettings(Settings):
    """Scheduled jobs."""

    table: ClassVar[str] = "cron"

    jobs: dict[Annotated[str, AfterValidator(_name)], JobSettings] = Field(
        default_factory=dict, description="jobs by name, each a table [cron.jobs.NAME]"
    )
