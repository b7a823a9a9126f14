"""A room on a real IRC server: people, a tendril, its scripted model and its clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from harnesses.irc.tendril import IrcTendril
from terrarium.clock import Clock
from tests.kit.clock import ManualClock
from tests.kit.irc_client import IrcClient, irc_client, irc_member
from tests.kit.irc_tendril import ROOM, irc_config, irc_tendril
from tests.kit.ircd import SERVERS, embedded_ircd
from tests.kit.openai_script import ScriptedOpenAI

NOBODY = "http://127.0.0.1:9"
"""The address of an agent server that cannot be reached."""

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)  # a Friday


@asynccontextmanager
async def room(
    data: Path,
    url: str,
    *nicks: str,
    server: str = "embedded",
    early: bool = False,
    clock: Clock | None = None,
    **tables: Any,
) -> AsyncIterator[tuple[IrcTendril, list[IrcClient]]]:
    """Run a tendril in its room on a server of `SERVERS`; yield it, and people who came after it
    or, with `early`, before it: the first in the room is its operator."""
    async with SERVERS[server]() as ircd, AsyncExitStack() as stack:

        async def come() -> list[IrcClient]:
            members = (irc_member(ircd.port, nick) for nick in nicks)
            return [await stack.enter_async_context(member) for member in members]

        first = await come() if early else []
        config = irc_config(data, ircd.port, url, **tables)
        tendril = await stack.enter_async_context(irc_tendril(config, clock))
        yield tendril, first or await come()


@asynccontextmanager
async def scripted_room(
    data: Path, *nicks: str, **options: Any
) -> AsyncIterator[tuple[ScriptedOpenAI, IrcTendril, list[IrcClient]]]:
    """Run a `room` with a scripted model; yield that first."""
    async with ScriptedOpenAI() as script, room(data, script.url, *nicks, **options) as inside:
        yield script, *inside


@asynccontextmanager
async def alice_in(
    data: Path, url: str, **options: Any
) -> AsyncIterator[tuple[IrcClient, IrcTendril]]:
    """Run a tendril in its room; yield alice, who came after it, and the tendril."""
    async with room(data, url, "alice", **options) as (tendril, (alice,)):
        yield alice, tendril


class Scene:
    """All that is in the room; subclasses add what their tests do with it. `rooms` are those in
    which only alice is, too."""

    rooms: Sequence[str] = ()
    tendril: IrcTendril

    def __init__(self, data: Path, port: int, alice: IrcClient, bob: IrcClient) -> None:
        self.data, self.port, self.alice, self.bob = data, port, alice, bob
        self.script, self.clock = ScriptedOpenAI(max_model_len=131_072), ManualClock(NOON)

    @classmethod
    @asynccontextmanager
    async def open(cls, data: Path, **tables: Any) -> AsyncIterator[Self]:
        """Open the scene, with a tendril under these tables of its configuration."""
        async with (
            embedded_ircd() as ircd,
            irc_client(ircd.port, "alice") as alice,
            irc_client(ircd.port, "bob") as bob,
        ):
            scene = cls(data, ircd.port, alice, bob)
            for client, room in ((alice, ROOM), (bob, ROOM), *((alice, r) for r in cls.rooms)):
                await client.join(room)
            async with scene.script as script:
                config = irc_config(data, ircd.port, script.url, **tables)
                async with irc_tendril(config, scene.clock) as scene.tendril:
                    yield scene
