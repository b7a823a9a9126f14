"""Timeout of tests, and waiting for what announces itself by no event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

PATIENCE = 60.0
"""Seconds that tests wait for an expected event. Far more than any event takes, so that tests do
not fail on a busy machine; a successful wait ends with the event."""


async def until(holds: Callable[[], object]) -> None:
    """Wait until `holds()` is true, where nothing announces it. Raises TimeoutError."""
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
