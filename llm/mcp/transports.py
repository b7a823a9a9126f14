"""Transports to an MCP server, with limits on what it may send.

The SDK's own transports accept a line or an answer of any length. Here a message has at most
`MAX_MESSAGE_SIZE`, and a server that floods us with messages is disconnected.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, TypeAlias

import anyio
import httpx2
import mcp_types as types
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from llm.mcp.settings import McpServerSettings
from terrarium.cancellation import run_beside

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams, WriteStream

MAX_MESSAGE_SIZE = 4 * 1024 * 1024
"""The largest message that a server may send, in bytes."""

MESSAGE_BURST, MESSAGES_PER_SECOND = 500, 20
"""The messages that a server may send in a burst, and the rate per second beyond that."""

_STDERR_BYTES, _STDERR_LINES = 4_096, 5  # kept of a program's standard error
_MAX_LINE_LENGTH = 200  # characters of each of these lines
_GRACE_PERIOD = 1.0  # seconds to end, before SIGTERM, and again before SIGKILL
_CONNECT_TIMEOUT = 10.0
_STREAM_TIMEOUT = 660.0  # seconds of silence in an answer; above the longest timeout of a tool

Item = SessionMessage | Exception
Streams: TypeAlias = "tuple[AsyncIterable[Item], WriteStream[SessionMessage]]"
"""What a server sends, and where to write what we send."""


class ServerMisbehaved(Exception):
    """The server exceeded a limit on what it may send; the message says which."""


class StderrTail:
    """The tail of a program's standard error, with the secrets of its environment masked."""

    def __init__(self) -> None:
        self._end = b""  # with one byte more if it was cut
        self._secrets: Sequence[str] = ()

    @property
    def text(self) -> str:
        """The last lines, each cut in length; untrusted."""
        text = self._end.decode(errors="replace")
        # Drop the first line if it is incomplete: half a secret in it would not be recognised.
        if len(self._end) > _STDERR_BYTES:
            text = text.partition("\n")[2]
        for secret in self._secrets:
            text = text.replace(secret, "***")
        lines = text.strip().splitlines()[-_STDERR_LINES:]
        return "\n".join(line[:_MAX_LINE_LENGTH] for line in lines)

    async def follow(self, errors: asyncio.StreamReader, secrets: Iterable[str]) -> None:
        """Read a program's standard error to its end, replacing the tail of the previous one."""
        self._end, self._secrets = b"", [each for each in secrets if each]
        while part := await errors.read(_STDERR_BYTES):
            self._end = (self._end + part)[-_STDERR_BYTES - 1 :]


@asynccontextmanager
async def transport(
    settings: McpServerSettings, on_end: Callable[[str], None], stderr_tail: StderrTail
) -> AsyncGenerator[TransportStreams]:
    """Connect to a server and yield the streams for the SDK.

    `on_end` is called with the reason when the server has gone or was cut off. The standard error
    of a program goes to `stderr_tail`.
    """
    inner = _http(settings) if settings.url else _process(settings, stderr_tail)
    async with inner as (incoming, outgoing):
        # Unbuffered, so that a server is read only as fast as its messages are handled.
        send, receive = anyio.create_memory_object_stream[Item](0)

        async def pump() -> None:
            clock, reason = asyncio.get_running_loop().time, "it has ended"
            left, since = float(MESSAGE_BURST), clock()  # a token bucket
            async with send:
                try:
                    async for item in incoming:
                        now = clock()
                        left = min(MESSAGE_BURST, left + (now - since) * MESSAGES_PER_SECOND) - 1
                        since = now
                        if left < 0:
                            raise ServerMisbehaved("it floods: too many messages")
                        _drop_output_schemas(item)
                        await send.send(item)
                except ServerMisbehaved as error:
                    reason = str(error)
                except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                    reason = "the connection was closed"
            on_end(reason)

        async with run_beside(pump()):
            try:
                yield receive, outgoing
            finally:
                receive.close()
                send.close()


def _drop_output_schemas(item: Item) -> None:
    """Remove the output schemas from a list of tools. The SDK would validate results by them, and
    so run whatever regular expressions the server has put there."""
    if isinstance(item, SessionMessage) and isinstance(item.message, types.JSONRPCResponse):
        tools = item.message.result.get("tools")
        for tool in tools if isinstance(tools, list) else ():
            if isinstance(tool, dict):
                tool.pop("outputSchema", None)


@asynccontextmanager
async def _http(settings: McpServerSettings) -> AsyncGenerator[Streams]:
    token = settings.token
    headers = {"authorization": f"Bearer {token.get_secret_value()}"} if token else {}
    timeout = httpx2.Timeout(_STREAM_TIMEOUT, connect=_CONNECT_TIMEOUT)

    async def bound(response: httpx2.Response) -> None:
        # Of event streams the SDK limits each event.
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _BoundedStream(response.stream)

    # The SDK follows no redirect to another origin, so only the configured one sees the token.
    async with (
        httpx2.AsyncClient(
            headers=headers,
            timeout=timeout,
            transport=httpx2.AsyncHTTPTransport(),  # without proxies from the environment
            event_hooks={"response": [bound]},
        ) as http,
        streamable_http_client(
            settings.url, http_client=http, max_sse_event_size=MAX_MESSAGE_SIZE
        ) as streams,
    ):
        yield streams


class _BoundedStream(httpx2.AsyncByteStream):
    """A body of which reading more than `MAX_MESSAGE_SIZE` raises StreamError."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for part in self._stream:
            size += len(part)
            if size > MAX_MESSAGE_SIZE:
                raise httpx2.StreamError(f"the answer has more than {MAX_MESSAGE_SIZE} bytes")
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()


@asynccontextmanager
async def _process(settings: McpServerSettings, stderr_tail: StderrTail) -> AsyncGenerator[Streams]:
    """Start a server and exchange lines of JSON with it; it is stopped on exit.

    Of our environment it gets only PATH, HOME and the like. It leads a new process group, which is
    stopped as a whole. Raises OSError.
    """
    own = {name: value.get_secret_value() for name, value in settings.env.items()}
    process = await asyncio.create_subprocess_exec(
        *settings.command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=get_default_environment() | own,
        limit=MAX_MESSAGE_SIZE,
        start_new_session=True,
    )
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
    assert stdin is not None
    assert stdout is not None
    assert stderr is not None
    listening = asyncio.create_task(stderr_tail.follow(stderr, own.values()))
    outgoing, from_us = anyio.create_memory_object_stream[SessionMessage](0)

    async def write_lines() -> None:
        try:
            async for each in from_us:
                line = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                stdin.write(f"{line}\n".encode())
                await stdin.drain()
        except (ConnectionError, RuntimeError):  # it reads no more, so that nothing can be asked
            _signal_group(process.pid, signal.SIGKILL)

    try:
        async with run_beside(write_lines()):
            yield _messages(stdout), outgoing
    finally:
        outgoing.close()
        from_us.close()
        # Also when cancelled: no process may be left behind.
        with anyio.CancelScope(shield=True):
            await _stop(process, stdin, stdout)
            await asyncio.wait({listening}, timeout=_GRACE_PERIOD)
            listening.cancel()


async def _messages(stdout: asyncio.StreamReader) -> AsyncIterator[Item]:
    """Yield each line as a message. Raises ServerMisbehaved for one that is too long."""
    while True:
        try:
            line = await stdout.readline()
        except ValueError as error:  # the line exceeds the limit of the reader
            raise ServerMisbehaved(f"a message has more than {MAX_MESSAGE_SIZE} bytes") from error
        except ConnectionError:
            return
        if not line:
            return
        if line.strip():
            try:
                message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError as error:
                yield error
            else:
                yield SessionMessage(message)


async def _stop(
    process: asyncio.subprocess.Process, stdin: asyncio.StreamWriter, stdout: asyncio.StreamReader
) -> None:
    """Stop a server as MCP specifies: close its standard input, then SIGTERM, then SIGKILL."""

    async def drain() -> None:
        while await stdout.read(2**16):
            pass

    async def has_ended() -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_PERIOD):
                await process.wait()
        return process.returncode is not None

    stdin.close()
    # Keep reading: a server that blocks on a full pipe cannot exit.
    async with run_beside(drain()):
        for number in (signal.SIGTERM, signal.SIGKILL):
            if await has_ended():
                break
            _signal_group(process.pid, number)
        _signal_group(process.pid, signal.SIGKILL)  # the children that it left behind
        await has_ended()
    # A descendant in a session of its own may hold the pipes open; asyncio has no public way to
    # close our ends of them.
    getattr(process, "_transport").close()  # noqa: B009


def _signal_group(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
