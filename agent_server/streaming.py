"""Answers to clients that may leave at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

import structlog
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Send

from agent_server.encoding import event
from agent_server.engines.base import Chunk, Chunks
from agent_server.errors import ApiError, ClientGone, EngineUnavailable

log = structlog.get_logger()
T = TypeVar("T")

Events = AsyncGenerator[bytes, None]
Render = Callable[[Chunk, Chunks], Events]
"""Turns the first chunk and the rest into the events of one API."""

DONE = b"data: [DONE]\n\n"


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`; when the client leaves first, stop it and raise ClientGone."""
    # The work stays in this task, as in asyncio.timeout: a task of its own would cost more.
    task, gone = asyncio.current_task(), False
    assert task is not None

    def stop(_leaving: asyncio.Task[None]) -> None:
        nonlocal gone
        gone = True
        task.cancel()

    leaving = asyncio.ensure_future(_left(request))
    leaving.add_done_callback(stop)
    try:
        return await work
    except asyncio.CancelledError:
        if gone and not task.uncancel():
            raise ClientGone("the client left before the answer was complete") from None
        raise
    finally:
        leaving.remove_done_callback(stop)
        leaving.cancel()


class EventStream(StreamingResponse):
    """Server-sent events made of chunks, whose generation ends when the client leaves."""

    def __init__(self, events: Events, chunks: Chunks) -> None:
        self._chunks = chunks
        self._events = events
        super().__init__(
            events,
            media_type="text/event-stream",
            headers={"cache-control": "no-cache", "x-accel-buffering": "no"},
        )

    async def stream_response(self, send: Send) -> None:
        """Send all events, and stop the generation however the sending ends."""
        async with aclosing(self._chunks), aclosing(self._events):
            await super().stream_response(send)


async def begin(request: Request, chunks: Chunks, render: Render) -> EventStream:
    """Start an answer: an error before the first chunk is raised, a later one is an event."""
    try:
        first = await unless_gone(request, _first(chunks))
    except BaseException:
        await chunks.aclose()
        raise
    return EventStream(render(first, chunks), chunks)


async def chat_events(first: Chunk, chunks: Chunks, *, include_usage: bool) -> Events:
    """The events of a chat: its chunks as they are, then `[DONE]`."""
    try:
        yield event(first)
        async for chunk in chunks:
            if chunk["choices"] or include_usage:
                yield event(chunk)
    except ApiError as error:
        yield event(broken(error).as_wire())
        return
    yield DONE


def broken(error: ApiError) -> ApiError:
    """Log an error that ends a stream which has begun; returns it."""
    log.warning("stream.broken", status=error.status, code=error.code)
    return error


async def _first(chunks: Chunks) -> Chunk:
    try:
        return await anext(chunks)
    except StopAsyncIteration:
        raise EngineUnavailable("the engine gave an empty answer") from None


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
