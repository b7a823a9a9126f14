"""An event loop whose clock a test puts forward."""

from __future__ import annotations

import asyncio


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock is `ahead` by so many seconds."""

    ahead = 0.0

    def time(self) -> float:
        """Return the seconds of the clock."""
        return super().time() + self.ahead


def jump(seconds: float) -> None:
    """Put the clock of the running loop forward, so that timers up to then are due."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, JumpingLoop)
    loop.ahead += seconds
