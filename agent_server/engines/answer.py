"""An upstream's answer, as far as it has come."""

from __future__ import annotations

from collections.abc import Mapping

from agent_server.engines.upstream import Upstream
from agent_server.errors import EngineTimeout, EngineUnavailable
from llm.http.connection import BrokenError, Connection

LONGEST = 64 * 1024 * 1024
"""Bytes of an answer that comes whole."""

FAREWELL = 0.05
"""Seconds in which a stream must end after its last event for its connection to be kept."""


class Answer:
    """The status, the headers and the body of one answer.

    The upstream has it among those it is `asking` until it is closed. `timeout` is how many
    seconds the engine may be silent.
    """

    def __init__(self, connection: Connection, upstream: Upstream, timeout: float) -> None:
        self._connection: Connection | None = connection
        self._timeout = timeout
        self.status: int = connection.status
        self.headers: Mapping[str, str] = connection.headers
        self.begun = connection.has_body
        self.upstream = upstream

    async def piece(self) -> bytes:
        """What has come of the body; nothing at its end. Raises ApiError."""
        assert self._connection is not None
        try:
            return await self._connection.read()
        except TimeoutError as error:
            self.upstream.failed("silent")
            raise EngineTimeout(f"the engine was silent for {self._timeout:g} s") from error
        except BrokenError as error:
            self.upstream.failed(str(error))
            raise EngineUnavailable("the engine went away in the middle of the answer") from error

    async def whole(self) -> bytes:
        """The rest of the body, and close. Raises EngineTimeout, EngineUnavailable."""
        body = bytearray()
        try:
            while piece := await self.piece():
                body += piece
                if len(body) > LONGEST:
                    raise EngineUnavailable(f"the engine's answer has more than {LONGEST} bytes")
        finally:
            self.close()
        return bytes(body)

    def finish(self) -> None:
        """Close after the last event of a stream; its connection is kept if it ends by itself."""
        self.close(FAREWELL)

    def close(self, grace: float = 0) -> None:
        """Leave; an answer that has not ended is broken off, which stops its generation."""
        if self._connection is not None:
            self._connection.leave(grace)
            self._connection = None
            self.upstream.asking -= 1
