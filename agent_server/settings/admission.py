"""The table `[admission]`."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from terrarium.config import Settings


class AdmissionSettings(Settings):
    """The limits of the queue in front of each engine."""

    table: ClassVar[str] = "admission"

    max_waiting: int = Field(
        256, ge=1, description="requests that may wait; more are answered with 429"
    )
