"""The table `[memory]`."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from terrarium.config import Settings


class MemorySettings(Settings):
    """Settings of the memory of tendrils."""

    table: ClassVar[str] = "memory"

    learn: Literal["auto", "on", "off"] = Field(
        "auto",
        description="whether the model sums up conversations and notes facts, in the background; "
        "auto: only a model that can choose tools, as smaller ones make things up. What people ask "
        "to be remembered is remembered in any case",
    )
