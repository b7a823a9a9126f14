"""The table `[admission]`."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from terrarium.config import Settings


class AdmissionSettings(Settings):
    """Who may use the engine now, and who waits."""

    table: ClassVar[str] = "admission"

    places: int | None = Field(
        None,
        ge=1,
        description="requests that run at once at each engine; by default the slots of the "
        "embedded one, and 32 for each upstream",
    )
    reserved: int | None = Field(
        None,
        ge=0,
        description="places that background requests leave free for interactive ones; "
        "by default a quarter of them, at least one of two",
    )
    yields: bool | None = Field(
        None,
        description="whether a background request whose answer has not begun makes room for an "
        "interactive one and begins again later, and an interactive one is alone until most "
        "answers are whole, as is right where requests share one processor; by default at the "
        "embedded engine only",
    )
    background_share: float = Field(
        0.1, gt=0, lt=1, description="share of the tokens that background gets when all is busy"
    )
    max_waiting: int = Field(
        256, ge=1, description="requests that may wait; more are answered with 429"
    )
    max_wait: float = Field(
        120, gt=0, description="how long an interactive request may wait, in seconds; then 503"
    )
    max_wait_background: float = Field(
        1800, gt=0, description="how long a background request may wait, in seconds; then 503"
    )

    def reserved_of(self, places: int) -> int:
        """How many of so many places background leaves free."""
        if self.reserved is not None:
            return self.reserved
        return 0 if places == 1 else max(1, places // 4)
