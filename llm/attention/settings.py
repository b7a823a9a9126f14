"""The table `[attention]`: how much a tendril may do unasked."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from terrarium.config import Settings


class AttentionSettings(Settings):
    """Speaking unasked, where `proactive` of a channel allows it."""

    table: ClassVar[str] = "attention"

    tokens: int = Field(
        200_000,
        ge=1_000,
        description="tokens, read and written, that use up all energy; the less is left, the more "
        "it takes to make the bot speak unasked",
    )
    recharge: float = Field(
        0.25, gt=0, le=1_000, description="share of all energy that comes back in an hour"
    )
