"""The table `[up]`."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field
from pydantic_settings import NoDecode

from terrarium.config import Settings, split_commas


class UpSettings(Settings):
    """The processes that `terrarium up` starts beside the agent server."""

    table: ClassVar[str] = "up"

    tendrils: Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_commas)] = Field(
        ("irc", "web", "cron"), description="tendrils to start, each in a process of its own"
    )
    irc_port: int = Field(
        6667,
        ge=0,
        le=65535,
        description="port of the IRC server that comes along when [irc] names none; "
        "0 takes a free one",
    )
