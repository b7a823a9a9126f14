"""A room on a real IRC server: alice and bob, a tendril, its scripted model and its clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from harnesses.irc.tendril import IrcTendril
from tests.kit.clock import ManualClock
from tests.kit.irc_client import IrcClient, irc_client
from tests.kit.irc_tendril import ROOM, irc_config, irc_tendril
from tests.kit.ircd import embedded_ircd
from tests.kit.openai_script import ScriptedOpenAI

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)  # a Friday


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
