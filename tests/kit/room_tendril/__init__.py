"""Tendril with in-memory rooms that uses only the public API, for tests of that API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import ClassVar, TypeVar

from terrarium import ChatTendril, Identity, LoggedLine, Place, Tendril, tool
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


class PondTendril(ChatTendril):
    """Ponds on several networks; what is said there goes to `said`."""

    name = "pond"
    file: bytes | None = None

    async def serve(self) -> None:
        self.said: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self.status.ready()
        await asyncio.Event().wait()

    async def send(
        self, place: Place, text: str, line: LoggedLine | None, alone: bool
    ) -> bool | str:
        self.said.put_nowait((place.network, text))
        return True

    async def image(self, line: LoggedLine) -> bytes | None:
        return self.file

    def members(self, place: Place) -> list[str]:
        return ["ada", "bob"] if place.network == "north" else ["ada"]

    async def hears(self) -> tuple[str, str]:
        """Wait for what is said next, and on which network. Raises TimeoutError."""
        async with asyncio.timeout(PATIENCE):
            return await self.said.get()


class EditedPondTendril(PondTendril):
    """The same, where messages can be edited; on the network "away" they are gone by then."""

    async def send(self, place: Place, text: str, line: LoggedLine | None, alone: bool) -> str:
        await super().send(place, text, line, alone)
        return text

    async def edit(self, place: Place, message: str, text: str) -> bool:
        self.said.put_nowait((f"{place.network}, edited {message}", text))
        return place.network != "away"


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
