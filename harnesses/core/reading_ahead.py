"""What the engine is given to read of rooms' next prompts while nobody asks there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import structlog

from llm.client import AgentClient
from llm.context import Ahead, Context
from llm.errors import ModelError
from llm.turn import Turn
from storage.errors import StorageError

_PATIENCE = 60.0  # seconds until the engine has nothing else to do
_SOON = 2.0  # seconds in which what it still has is read

_log = structlog.get_logger()


class ReadingAhead:
    """For each room at most one reading. Get it with `opened`."""

    def __init__(self, client: AgentClient, tasks: asyncio.TaskGroup) -> None:
        self._client = client
        self._tasks = tasks
        self._readings: dict[str, asyncio.Task[None]] = {}
        self._at_it = asyncio.Lock()  # else one would take the place of what another is made of

    @classmethod
    @asynccontextmanager
    async def opened(cls, client: AgentClient) -> AsyncIterator[ReadingAhead]:
        """Ready to begin; what is being read on leaving is left."""
        async with asyncio.TaskGroup() as tasks:
            ahead = cls(client, tasks)
            try:
                yield ahead
            finally:
                ahead.end_all()

    def begin(self, room: str, turn: Turn, context: Context) -> None:
        """Read the beginning of the room's next prompt, if it had better begin anew after a turn
        there. What goes on for an earlier turn there ends."""
        self.end(room)
        reading = self._tasks.create_task(self._read(turn, context))
        self._readings[room] = reading
        reading.add_done_callback(lambda _: self._ended(room, reading))

    def end(self, room: str) -> None:
        """Somebody asks there: what is not read by now is not worth it any more."""
        if reading := self._readings.get(room):
            reading.cancel()

    def end_all(self) -> None:
        """Somebody is forgotten, or the tendril stops."""
        for reading in self._readings.values():
            reading.cancel()

    async def ended(self) -> None:
        """Wait until nothing is read any more."""
        while self._readings:
            await asyncio.wait(self._readings.values())

    def _ended(self, room: str, reading: asyncio.Task[None]) -> None:
        if self._readings.get(room) is reading:
            del self._readings[room]

    async def _read(self, turn: Turn, context: Context) -> None:
        try:
            if ahead := await context.ahead():
                async with self._at_it:
                    await self._read_both(turn, ahead)
                await context.begin(ahead)
        except (ModelError, StorageError, TimeoutError) as error:  # then the lines go on as before
            _log.info("turn.not_read_ahead", reason=type(error).__name__)

    async def _read_both(self, turn: Turn, ahead: Ahead) -> None:
        """The last prompt once more, as another may have taken its place meanwhile: an engine that
        keeps prompts brings it back without reading it. Then the beginning, which is made of it."""
        call = replace(turn.call, priority="background", max_tokens=1)
        tools = turn.schemas
        for purpose, messages, patience in (
            ("recalled", ahead.last, _PATIENCE),
            ("ahead", ahead.beginning, _SOON),
        ):
            async with asyncio.timeout(patience):
                await self._client.chat(messages, replace(call, purpose=purpose), tools=tools)
