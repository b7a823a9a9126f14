"""An upstream's answer, as far as it has come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping

import aiohttp

from agent_server.engines.upstream import Upstream
from agent_server.errors import EngineTimeout, EngineUnavailable

LONGEST = 64 * 1024 * 1024
"""Bytes of an answer that comes whole."""

FAREWELL = 0.05
"""Seconds in which a stream must end after its last event for its connection to be kept."""


class Answer:
    """The status, the headers and the body of one answer, of which `first` has been read.

    The upstream has it among those it is `asking` until it is closed.
    """

    def __init__(
        self,
        response: aiohttp.ClientResponse,
        first: bytes,
        upstream: Upstream,
        timeout: float,
    ) -> None:
        self._response = response
        self._first = first
        self._timeout = timeout
        self._left = False
        self.upstream = upstream

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self._response.status

    @property
    def headers(self) -> Mapping[str, str]:
        """The HTTP headers, whatever their case."""
        return self._response.headers

    @property
    def begun(self) -> bool:
        """Whether there is a body."""
        return bool(self._first)

    async def pieces(self) -> AsyncGenerator[bytes]:
        """The body as it comes. Raises EngineTimeout, EngineUnavailable."""
        piece = self._first
        while piece:
            yield piece
            piece = await self._next()

    async def whole(self) -> bytes:
        """The rest of the body, and close. Raises EngineTimeout, EngineUnavailable."""
        body = bytearray()
        try:
            async for piece in self.pieces():
                body += piece
                if len(body) > LONGEST:
                    raise EngineUnavailable(f"the engine's answer has more than {LONGEST} bytes")
        finally:
            self.close()
        return bytes(body)

    async def finish(self) -> None:
        """Close after the last event of a stream, keeping the connection if it ends by itself."""
        try:
            async with asyncio.timeout(FAREWELL):
                while await self._response.content.readany():
                    pass
        except (TimeoutError, aiohttp.ClientError):
            pass
        self.close()

    def close(self) -> None:
        """Leave; an answer that has not ended is broken off, which stops its generation."""
        if not self._left:
            self._left = True
            self._response.close()
            self.upstream.asking -= 1

    async def _next(self) -> bytes:
        try:
            return await self._response.content.readany()
        except TimeoutError as error:
            self.upstream.failed("silent")
            raise EngineTimeout(f"the engine was silent for {self._timeout:g} s") from error
        except aiohttp.ClientError as error:
            self.upstream.failed(type(error).__name__)
            raise EngineUnavailable("the engine went away in the middle of the answer") from error
