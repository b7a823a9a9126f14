"""An answer of the agent server, as far as it has come."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager

from llm.errors import ModelError, Refused, TimedOut, Unreachable
from llm.http.connection import BrokenError, Connection
from llm.http.connections import Connections, UnreachableError
from llm.wire import error_of

OK = 200
FAREWELL = 0.05
"""Seconds in which a stream must end after its last event for its connection to be kept."""

_LONGEST = 64 * 1024 * 1024  # bytes of an answer that comes whole


class Answer:
    """The `status`, the `headers` and the body. What is read of it raises ModelError."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.status = connection.status
        self.headers: Mapping[str, str] = connection.headers

    async def piece(self) -> bytes:
        """What has come of the body since the last time; nothing at its end."""
        with _translated():
            return await self._connection.read()

    async def whole(self) -> bytes:
        """The whole body."""
        body = bytearray()
        while piece := await self.piece():
            body += piece
            if len(body) > _LONGEST:
                raise Refused(f"more than {_LONGEST} bytes", self.status)
        return bytes(body)

    async def error(self) -> ModelError:
        """What an answer other than 200 stands for."""
        return error_of(self.status, self.headers, await self.whole())


@asynccontextmanager
async def answering(
    connections: Connections,
    method: str,
    path: str,
    content: bytes | None,
    headers: Mapping[str, str],
) -> AsyncIterator[Answer]:
    """The answer to a request; on leaving, what has not been read of it is broken off. Raises
    ModelError."""
    with _translated():
        connection = await connections.ask(method, path, content, headers)
    whole = False
    try:
        yield Answer(connection)
        whole = True
    finally:
        connection.leave(FAREWELL if whole else 0)


@contextmanager
def _translated() -> Iterator[None]:
    """The errors of a connection as ours."""
    try:
        yield
    except TimeoutError as error:
        raise TimedOut("the server is silent") from error
    except (UnreachableError, BrokenError) as error:
        raise Unreachable(f"{type(error).__name__}: {error}") from error
