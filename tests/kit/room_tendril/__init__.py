"""A tendril with rooms in memory, built on the public door alone, for tests of what that has."""

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
    """People talk in rooms by `hear`; what is said to them is in the queue `spoken`.

    While not `open` nothing can be said.
    """

    name: ClassVar[str] = "rooms"

    def __init__(self, config: Config, clock: Clock | None = None) -> None:
        super().__init__(config, clock)
        self.spoken: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self.open = asyncio.Event()
        self.open.set()

    async def serve(self) -> None:
        """Be there."""
        self.status.ready("rooms are open")
        await asyncio.Event().wait()

    async def say(self, place: Place, text: str) -> bool:
        """Say a text in a room, if the rooms are open."""
        if self.open.is_set():
            self.spoken.put_nowait((place.channel, text))
        return self.open.is_set()

    async def hear(self, room: str, who: Identity, text: str) -> LoggedLine:
        """Take in a line, and return once it is in the log."""
        line = self.log.record(room, who, text)
        await line.pending.wait_visible()
        return line

    async def ask(self, room: str, who: Identity, text: str) -> str:
        """Answer a question that was asked in a room."""
        result = await self.turn(self.request(await self.hear(room, who, text)))
        return result.text

    async def next_spoken(self) -> tuple[str, str]:
        """Return what is said next, with its room."""
        async with asyncio.timeout(PATIENCE):
            return await self.spoken.get()

    @tool
    async def cups(self) -> int:
        """Count the cups."""
        return 7


def rooms_config(data: Path, api_url: str = "http://127.0.0.1:9") -> Config:
    """A configuration with the data folder and the agent server's address."""
    return Config({"agent": {"api_url": api_url, "timezone": "UTC"}}, None, data)


def room_tendril(
    config: Config, clock: Clock | None = None
) -> AbstractAsyncContextManager[RoomTendril]:
    """A tendril that is ready."""
    return ready(RoomTendril(config, clock))


@asynccontextmanager
async def ready(tendril: R) -> AsyncIterator[R]:
    """Run a tendril, which is ready."""
    running = asyncio.create_task(tendril.run())
    try:
        async with asyncio.timeout(PATIENCE):
            await tendril.status.became_ready.wait()
        yield tendril
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
