"""Waiting in tests."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

PATIENCE = 60.0
"""Seconds that tests wait for an expected event. Far more than any event takes, so that tests do
not fail on a busy machine; a successful wait ends with the event."""


async def until(met: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Call `met` again and again until what it returns, or awaits, is true; return that.

    For what no event announces, such as the state of another process. Raises TimeoutError.
    """
    async with asyncio.timeout(seconds):
        while True:
            found = met()
            if inspect.isawaitable(found):
                found = await found
            if found:
                return found
            await asyncio.sleep(0.02)
