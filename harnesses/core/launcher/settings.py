"""The table `[up]`."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field
from pydantic_settings import NoDecode

from terrarium.config import Settings


def _comma_separated(value: object) -> object:
    """A list, or a string with commas as environment variables have."""
    if isinstance(value, str):
        return [word.strip() for word in value.split(",") if word.strip()]
    return value


class UpSettings(Settings):
    """The processes that `terrarium up` starts beside the agent server."""

    table: ClassVar[str] = "up"

    tendrils: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_comma_separated)] = Field(
        ("irc", "web", "cron"), description="tendrils to start, each in a process of its own"
    )
    irc_port: int = Field(
        6667,
        ge=0,
        le=65535,
        description="port of the IRC server that comes along when [irc] names none; "
        "0 takes a free one",
    )
