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
        "auto: only a model that can choose tools, as smaller ones make things up. Facts that "
        "people ask to be remembered are stored in any case",
    )
    shared_tokens: int = Field(
        200,
        ge=0,
        description="tokens of a prompt for facts that other rooms and tendrils know, as far as the"
        " asker may read them; 0: none",
    )
    people: tuple[tuple[str, ...], ...] = Field(
        (),
        description="who is the same person: lists of NETWORK/NAME, as irc/~ada for the account ada"
        " on the network irc, or chat/ada for the user ada of `terrarium chat`",
    )
