"""The ways to an MCP server, with limits on what it may send.

The SDK's own transports read a line or an answer of any length. Here a message has at most
`MOST_BYTES`, and a server that sends more messages than anybody needs is cut off.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
import httpx2
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from llm.mcp.settings import McpServerSettings

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

MOST_BYTES = 4 * 1024 * 1024
"""Of one message of a server."""

BURST, PER_SECOND = 500, 20
"""Messages that a server may send at once, and how many more each second."""

_LAST_BYTES, _LAST_LINES = 4_096, 5  # of what a program says of its errors
_LONGEST_LINE = 200  # characters of each
_GRACE = 1.0  # seconds to end, before SIGTERM, and again before SIGKILL
_CONNECT = 10.0
_LONGEST_STREAM = 660.0  # seconds of silence of an answer; tools have timeouts of their own

Item = SessionMessage | Exception


class ServerMisbehaved(Exception):
    """A server sends more than it may; the message says what."""


class MessageBudget:
    """A token bucket for the messages of one connection; `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left = float(BURST)
        self._since = clock()

    def spend(self) -> None:
        """Count a message. Raises ServerMisbehaved when there are too many."""
        now = self._clock()
        self._left = min(BURST, self._left + (now - self._since) * PER_SECOND)
        self._since = now
        if self._left < 1:
            raise ServerMisbehaved("it floods: too many messages")
        self._left -= 1


class LastWords:
    """The end of what a program has written to standard error, without the secrets it was given."""

    def __init__(self) -> None:
        self._end = b""
        self._is_cut = False
        self._secrets: Sequence[str] = ()

    @property
    def text(self) -> str:
        """The last lines, their ends left out; untrusted."""
        text = self._end.decode(errors="replace")
        if self._is_cut:  # of the first line, and perhaps of a secret, only the end is left
            text = text.partition("\n")[2]
        for secret in self._secrets:
            text = text.replace(secret, "***")
        lines = text.strip().splitlines()[-_LAST_LINES:]
        return "\n".join(line[:_LONGEST_LINE] for line in lines)

    async def follow(self, errors: asyncio.StreamReader, secrets: Iterable[str]) -> None:
        """Read a program's standard error to its end; what the one before has said is dropped."""
        self._end, self._is_cut, self._secrets = b"", False, [each for each in secrets if each]
        while part := await errors.read(_LAST_BYTES):
            self._end += part
            self._is_cut |= len(self._end) > _LAST_BYTES
            self._end = self._end[-_LAST_BYTES:]


@asynccontextmanager
async def transport(
    settings: McpServerSettings, on_end: Callable[[str], None], last_words: LastWords
) -> AsyncGenerator[TransportStreams]:
    """Connect to a server; `on_end` is told, with the reason, when it has gone or is cut off. A
    program's `last_words` are kept."""
    inner = _http(settings) if settings.url else _process(settings, last_words)
    async with inner as (incoming, outgoing):
        send, receive = anyio.create_memory_object_stream[Item](0)

        async def pump() -> None:
            budget, reason = MessageBudget(asyncio.get_running_loop().time), "it has ended"
            async with send:
                try:
                    async for item in incoming:
                        budget.spend()
                        if isinstance(item, ServerMisbehaved):
                            raise item
                        await send.send(_without_output_schemas(item))
                except ServerMisbehaved as error:
                    reason = str(error)
                except (anyio.ClosedResourceError, anyio.BrokenResourceError):
                    reason = "the connection was closed"
            on_end(reason)

        async with _beside(pump()):
            try:
                yield receive, outgoing
            finally:
                receive.close()
                send.close()


@asynccontextmanager
async def _beside(*work: Coroutine[Any, Any, None]) -> AsyncGenerator[None]:
    """Run something until this is left. Its errors are raised then."""
    running = [asyncio.create_task(each) for each in work]
    try:
        yield
    finally:
        for task in running:
            task.cancel()
        for result in await asyncio.gather(*running, return_exceptions=True):
            if isinstance(result, Exception):
                raise result


def _without_output_schemas(item: Item) -> Item:
    """Remove the schemas of results from a list of tools. The SDK would check results by them,
    with whatever regular expressions the server has put there."""
    if isinstance(item, SessionMessage) and isinstance(item.message, types.JSONRPCResponse):
        tools = item.message.result.get("tools")
        for tool in tools if isinstance(tools, list) else ():
            if isinstance(tool, dict):
                tool.pop("outputSchema", None)
    return item


@asynccontextmanager
async def _http(settings: McpServerSettings) -> AsyncGenerator[TransportStreams]:
    token = settings.token
    headers = {"authorization": f"Bearer {token.get_secret_value()}"} if token else {}
    timeout = httpx2.Timeout(_LONGEST_STREAM, connect=_CONNECT)
    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout, transport=_BoundedTransport()) as http,
        streamable_http_client(
            settings.url, http_client=http, max_sse_event_size=MOST_BYTES
        ) as streams,
    ):
        yield streams


class _BoundedTransport(httpx2.AsyncHTTPTransport):
    """HTTP with answers of at most `MOST_BYTES`; of streams each event has its own limit."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request; reading more than the limit raises StreamError."""
        response = await super().handle_async_request(request)
        kind = response.headers.get("content-type", "")
        stream = response.stream
        if not kind.startswith("text/event-stream") and isinstance(stream, httpx2.AsyncByteStream):
            response.stream = _BoundedStream(stream)
        return response


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for part in self._stream:
            size += len(part)
            if size > MOST_BYTES:
                raise httpx2.StreamError(f"the answer has more than {MOST_BYTES} bytes")
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()


@asynccontextmanager
async def _process(
    settings: McpServerSettings, last_words: LastWords
) -> AsyncGenerator[TransportStreams]:
    """Start a server and speak with it by lines of JSON; it has ended when this is left.

    It gets none of our environment but PATH, HOME and the like. It is the first of a process group
    of its own, all of which is ended. Raises OSError.
    """
    own = {name: value.get_secret_value() for name, value in settings.env.items()}
    process = await asyncio.create_subprocess_exec(
        *settings.command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=get_default_environment() | own,
        limit=MOST_BYTES,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    listening = asyncio.create_task(last_words.follow(process.stderr, own.values()))
    into, incoming = anyio.create_memory_object_stream[Item](0)
    outgoing, from_us = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        reading = _read_lines(process.stdout, into)
        async with _beside(reading, _write_lines(process.stdin, from_us, into)):
            yield incoming, outgoing
    finally:
        for stream in (into, incoming, outgoing, from_us):
            stream.close()
        with anyio.CancelScope(shield=True):
            await _stop(process)
            await asyncio.wait({listening}, timeout=_GRACE)
            listening.cancel()


async def _read_lines(stdout: asyncio.StreamReader, into: MemoryObjectSendStream[Item]) -> None:
    """Hand on each line as a message, until the end or a line that is too long."""
    async with into:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, ConnectionError):
            while True:
                try:
                    line = await stdout.readline()
                except ValueError:  # longer than the limit of the reader
                    await into.send(ServerMisbehaved(f"a message has more than {MOST_BYTES} bytes"))
                    return
                if not line:
                    return
                if line.strip():
                    await into.send(_message(line))


def _message(line: bytes) -> Item:
    """Return the message of a line, or the error that it is none."""
    try:
        return SessionMessage(types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        return error


async def _write_lines(
    stdin: asyncio.StreamWriter,
    messages: MemoryObjectReceiveStream[SessionMessage],
    into: MemoryObjectSendStream[Item],
) -> None:
    """Write each message as a line; when the server reads no more, end what it sends, too."""
    try:
        async for each in messages:
            line = each.message.model_dump_json(by_alias=True, exclude_unset=True)
            stdin.write(f"{line}\n".encode())
            await stdin.drain()
    except (ConnectionError, RuntimeError):
        into.close()


async def _stop(process: asyncio.subprocess.Process) -> None:
    """End a server: by the end of its input, by SIGTERM, by SIGKILL."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    async with _beside(_drain(process.stdout)):  # or it may wait for us to read
        for number in (signal.SIGTERM, signal.SIGKILL):
            if await _has_ended(process):
                break
            _signal_group(process.pid, number)
        _signal_group(process.pid, signal.SIGKILL)  # whom it has started itself
        await _has_ended(process)
    # Somebody in another session may hold the pipes; asyncio has no other way to close our ends.
    getattr(process, "_transport").close()  # noqa: B009


async def _drain(stdout: asyncio.StreamReader) -> None:
    """Read and drop what is left."""
    while await stdout.read(2**16):
        pass


async def _has_ended(process: asyncio.subprocess.Process) -> bool:
    """Wait a moment for the end of a process and of its pipes."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_GRACE):
            await process.wait()
    return process.returncode is not None


def _signal_group(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
