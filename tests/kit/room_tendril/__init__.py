"""Tendril with in-memory rooms that uses only the public API, for tests of that API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import ClassVar, TypeVar

from terrarium import Identity, LoggedLine, Place, Tendril, tool
from terrarium.clock import Clock
from terrarium.config import Config
from tests.kit.patience import PATIENCE

R = TypeVar("R", bound=Tendril)

PERSONA = Path(__file__).with_name("persona.md")
TEA = "#tea"
ADA = Identity("ada", account="ada@example.org")
BOB = Identity("bob", "bob", "bob.example.org")


class RoomTendril(Tendril):
    """A tendril whose people speak with `hear`; its own messages go to the queue `spoken`.

    While `open` is not set, `say` fails.
    """

    name: ClassVar[str] = "rooms"

    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        super().__init__(config, clock)
        self.spoken: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self.open = asyncio.Event()
        self.open.set()

    async def serve(self) -> None:
        """Report that the tendril is ready, and wait until cancelled."""
        self.status.ready("rooms are open")
        await asyncio.Event().wait()

    async def say(self, place: Place, text: str) -> bool:
        """Say a text in a room; return False if the rooms are not open."""
        if self.open.is_set():
            self.spoken.put_nowait((place.channel, text))
        return self.open.is_set()

    async def hear(self, room: str, who: Identity, text: str) -> LoggedLine:
        """Log a line and return it once it is visible to readers."""
        line = self.log.record(room, who, text)
        await line.pending.wait_visible()
        return line

    async def ask(self, room: str, who: Identity, text: str) -> str:
        """Log a question in a room and return the answer."""
        result = await self.turn(self.request(await self.hear(room, who, text)))
        return result.text

    async def next_spoken(self) -> tuple[str, str]:
        """Wait for the tendril's next message and return its room and text."""
        async with asyncio.timeout(PATIENCE):
            return await self.spoken.get()

    @tool
    async def cups(self) -> int:
        """Count the cups."""
        return 7


def rooms_config(data: Path, api_url: str = "http://127.0.0.1:9") -> Config:
    """Return a configuration with the data folder and the agent server's URL."""
    return Config({"agent": {"api_url": api_url, "timezone": "UTC"}}, None, data)


def room_tendril(
    config: Config, clock: Clock | None = None
) -> AbstractAsyncContextManager[RoomTendril]:
    """Run a `RoomTendril`; yield it once it is ready."""
    return ready(RoomTendril(config, clock))


@asynccontextmanager
async def ready(tendril: R) -> AsyncIterator[R]:
    """Run a tendril; yield it once it is ready."""
    running = asyncio.create_task(tendril.run())
    try:
        async with asyncio.timeout(PATIENCE):
            await tendril.status.became_ready.wait()
        yield tendril
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
