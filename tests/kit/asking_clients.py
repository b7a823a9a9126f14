"""Clients that send chats to an agent server continuously while a test disturbs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx2
from openai import APIError, AsyncOpenAI

from tests.kit.patience import PATIENCE

CLIENTS = 6


@dataclass
class Clients:
    """The outcome of all chats so far.

    `complete` counts whole answers; `refused` has the errors before and `broken_off` those during
    an answer. `change` is notified after each chat.
    """

    complete: int = 0
    refused: list[Exception] = field(default_factory=list)
    broken_off: list[Exception] = field(default_factory=list)
    change: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def answered(self, count: int) -> None:
        """Wait for `count` more complete answers. Raises TimeoutError."""
        async with asyncio.timeout(3 * PATIENCE), self.change:
            wanted = self.complete + count
            await self.change.wait_for(lambda: self.complete >= wanted)

    def check(self) -> None:
        """Assert that no chat was refused or broke off without an error asking to retry."""
        print(f"{self.complete} answers, {len(self.broken_off)} broken off")
        assert self.refused == []
        for error in self.broken_off:
            assert isinstance(error, APIError), repr(error)
            assert "ask again" in str(error)


@asynccontextmanager
async def asking_clients(openai: AsyncOpenAI, count: int = CLIENTS) -> AsyncIterator[Clients]:
    """Run `count` clients while the block runs, each with one chat at a time."""
    clients, stopping = Clients(), asyncio.Event()

    async def keep_asking(name: int) -> None:
        number = 0
        while not stopping.is_set():
            number += 1
            is_streaming = False
            try:
                stream = await openai.chat.completions.create(
                    model="terra",
                    messages=[{"role": "user", "content": "Tell me of the sea."}],
                    max_tokens=16,
                    stream=True,
                    extra_headers={"x-session-id": f"load/{name}/{number}"},
                )
                is_streaming = True
                async for _ in stream:
                    pass
                clients.complete += 1
            except (APIError, httpx2.HTTPError) as error:
                (clients.broken_off if is_streaming else clients.refused).append(error)
            async with clients.change:
                clients.change.notify_all()

    async with asyncio.TaskGroup() as tasks:
        for name in range(count):
            tasks.create_task(keep_asking(name))
        try:
            yield clients
        finally:
            stopping.set()
