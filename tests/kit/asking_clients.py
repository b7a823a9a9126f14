"""Clients of an agent server that ask again and again while something happens to it."""

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
    """Clients that ask again and again, and what came of it."""

    complete: int = 0
    refused: list[Exception] = field(default_factory=list)
    broken_off: list[Exception] = field(default_factory=list)
    change: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def answered(self, count: int) -> None:
        """Return when so many more answers have come whole. Raises TimeoutError."""
        async with asyncio.timeout(3 * PATIENCE), self.change:
            wanted = self.complete + count
            await self.change.wait_for(lambda: self.complete >= wanted)

    def check(self) -> None:
        """Fail if one was refused, or broke off without a clear error."""
        print(f"{self.complete} answers, {len(self.broken_off)} broken off")
        assert self.refused == []
        for error in self.broken_off:
            assert isinstance(error, APIError), repr(error)
            assert "ask again" in str(error)


@asynccontextmanager
async def asking_clients(openai: AsyncOpenAI, count: int = CLIENTS) -> AsyncIterator[Clients]:
    """Some clients, each with a conversation at a time, while the block runs."""
    clients, stopping = Clients(), asyncio.Event()

    async def keep_asking(name: int) -> None:
        number = 0
        while not stopping.is_set():
            number += 1
            await _ask(openai, clients, f"load/{name}/{number}")
            async with clients.change:
                clients.change.notify_all()

    async with asyncio.TaskGroup() as tasks:
        for name in range(count):
            tasks.create_task(keep_asking(name))
        try:
            yield clients
        finally:
            stopping.set()


async def _ask(openai: AsyncOpenAI, clients: Clients, session: str) -> None:
    try:
        stream = await openai.chat.completions.create(
            model="terra",
            messages=[{"role": "user", "content": "Tell me of the sea."}],
            max_tokens=16,
            stream=True,
            extra_headers={"x-session-id": session},
        )
    except (APIError, httpx2.HTTPError) as error:
        clients.refused.append(error)
        return
    try:
        async for _ in stream:
            pass
    except (APIError, httpx2.HTTPError) as error:
        clients.broken_off.append(error)
    else:
        clients.complete += 1
