"""The limits of both HTTP servers, against sockets that send half of what they should."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import httpx2
import pytest
from starlette.types import Receive, Scope, Send

from terrarium.http.serving import HEADER_BYTES, HttpLimits
from tests.kit.agent_server import agent_server
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import PATIENCE
from tests.kit.serving import serving
from tests.kit.web_site import web_site

SOON = HttpLimits(header=0.3, body=0.3, body_rate=1_000_000, idle=1, unread=0.3)
REQUEST = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
HALF = b"GET / HTTP/1.1\r\nhost: localhost\r\nx-half:"
HALF_BODY = b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\nhalf"
MEGABYTE = b"x" * (1 << 20)


class Client:
    """One connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def rest(self) -> bytes:
        """Everything until the server closes the connection."""
        said = b""
        async with asyncio.timeout(PATIENCE):
            with suppress(ConnectionError):
                while piece := await self.reader.read(1 << 16):
                    said += piece
        return said

    async def answer(self) -> bytes:
        """The status line and header of an answer with an empty body."""
        async with asyncio.timeout(PATIENCE):
            return await self.reader.readuntil(b"\r\n\r\n")


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Client]:
    host, port = url.removeprefix("http://").split(":")
    client = Client(*await asyncio.open_connection(host, int(port)))
    try:
        yield client
    finally:
        client.writer.close()
        with suppress(ConnectionError):
            await client.writer.wait_closed()


async def reads_all(scope: Scope, receive: Receive, send: Send) -> None:
    """Read the body, then answer with nothing; /early does not read, /endless never ends."""
    if scope["type"] != "http":
        return
    if scope["path"] != "/early":
        while (message := await receive()).get("more_body"):
            pass
        if message["type"] == "http.disconnect":
            return
    length = [] if scope["path"] == "/endless" else [(b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 200, "headers": length})
    while scope["path"] == "/endless":
        await send({"type": "http.response.body", "body": MEGABYTE, "more_body": True})
        if (await _now(receive))["type"] == "http.disconnect":
            return
    await send({"type": "http.response.body", "body": b""})


async def _now(receive: Receive) -> dict[str, str]:
    """Return whether the client has gone, without waiting for it."""
    try:
        async with asyncio.timeout(0.001):
            return dict(await receive())
    except TimeoutError:
        return {"type": "nothing"}


async def flood(client: Client, begin: bytes, most: int) -> bytes:
    """Send `begin` and then so many megabytes; what the server said, which must not take all."""
    said, sent = asyncio.create_task(client.rest()), 0
    with suppress(ConnectionError):
        await client.send(begin)
        while sent < most and not said.done():
            await client.send(MEGABYTE)
            sent += 1
    assert sent < most
    return await said


async def too_long(url: str) -> bytes:
    """What a server says to a header of 150 MB."""
    async with connected(url) as client:
        return await flood(client, b"GET / HTTP/1.1\r\nhost: localhost\r\nx-long: ", 150)


async def test_a_header_of_150_mb_is_refused_after_64_kib() -> None:
    async with serving(reads_all) as url:
        assert (await too_long(url)).startswith(b"HTTP/1.1 431 Request Header Fields Too Large")


@pytest.mark.parametrize("size", [HEADER_BYTES - 200, HEADER_BYTES + 200])
@pytest.mark.parametrize("in_pieces", [False, True])
async def test_a_header_of_64_kib_is_taken_a_longer_one_not(size: int, in_pieces: bool) -> None:
    fields = b"".join(b"x-%d: %s\r\n" % (number, b"v" * 1000) for number in range(size // 1009))
    whole = b"GET / HTTP/1.1\r\nhost: localhost\r\n" + fields
    whole += b"x-last: " + b"v" * (size - len(whole)) + b"\r\n\r\n"
    async with serving(reads_all) as url, connected(url) as client:
        pieces = [whole[at : at + 7000] for at in range(0, len(whole), 7000)]
        for piece in pieces if in_pieces else [whole]:
            with suppress(ConnectionError):
                await client.send(piece)
        status = b"200" if size < HEADER_BYTES else b"431"
        assert (await client.answer()).startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize("half", [HALF, HALF_BODY], ids=["header", "body"])
async def test_100_requests_that_stop_in_the_middle_are_given_up(half: bytes) -> None:
    async with serving(reads_all, SOON) as url, AsyncExitStack() as stack:
        clients = []
        for _ in range(100):
            clients.append(await stack.enter_async_context(connected(url)))
            await clients[-1].send(half)
        said = await asyncio.gather(*(client.rest() for client in clients))
    assert {each.split(b"\r\n")[0] for each in said} == {b"HTTP/1.1 408 Request Timeout"}


async def test_a_connection_that_says_nothing_is_closed_without_a_word() -> None:
    async with serving(reads_all, SOON) as url, connected(url) as client:
        assert await client.rest() == b""


async def test_a_body_that_trickles_has_no_more_time_than_one_that_stops() -> None:
    async with serving(reads_all, SOON) as url, connected(url) as client:
        await client.send(HALF_BODY[:-4])
        rest = asyncio.create_task(client.rest())
        sent = 0
        while not rest.done() and sent < 9:
            with suppress(ConnectionError):
                await client.send(b"x")
            sent += 1
            await asyncio.wait({rest}, timeout=0.15)
        assert (await rest).startswith(b"HTTP/1.1 408")
    assert sent < 9


async def test_a_body_that_was_refused_unread_gets_no_more_time() -> None:
    async with serving(reads_all, SOON) as url, connected(url) as client:
        await client.send(HALF_BODY.replace(b"POST /", b"POST /early"))
        assert b"200 OK" in await client.answer()
        await client.rest()  # it ends


async def test_trailers_and_chunk_extensions_without_an_end_are_refused() -> None:
    begin = b"POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    for more in (b"1\r\nx\r\n0\r\nx-trailer: ", b"1\r\nx\r\n1;extension="):
        async with serving(reads_all) as url, connected(url) as client:
            assert b"HTTP/1.1 431" in await flood(client, begin + more, 50)


async def test_an_idle_connection_is_closed_and_a_further_request_has_its_own_time() -> None:
    async with serving(reads_all, SOON) as url, connected(url) as client:
        for _ in range(2):
            await client.send(REQUEST)
            assert b"200 OK" in await client.answer()
        await client.send(b"\r\n" + HALF)
        assert b"408" in await client.rest()
    async with serving(reads_all, SOON) as url, connected(url) as client:
        await client.send(REQUEST)
        assert b"408" not in await client.rest()


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with serving(reads_all, SOON) as url, connected(url) as client:
        await client.send(REQUEST * 20 + HALF)
        said = await client.rest()
    assert said.count(b"HTTP/1.1 200 OK") == 20


async def test_an_answer_that_nobody_reads_is_given_up() -> None:
    async with serving(reads_all, SOON) as url, connected(url) as client:
        await client.send(REQUEST.replace(b"/ ", b"/endless "))
        await client.answer()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE):
            while True:  # the only sign: what we send is answered with a reset
                try:
                    await client.send(b"\r\n")
                except ConnectionError:
                    break
                await asyncio.sleep(0.05)


async def test_hundreds_of_half_open_connections_leave_room_for_a_whole_request() -> None:
    limits = HttpLimits(pending=50)
    async with serving(reads_all, limits) as url, AsyncExitStack() as stack:
        idle = await stack.enter_async_context(httpx2.AsyncClient(base_url=url, timeout=PATIENCE))
        assert (await idle.get("/")).status_code == 200
        for number in range(400):
            client = await stack.enter_async_context(connected(url))
            await client.send(HALF if number % 2 else HALF_BODY)
            if number % 40 == 0:
                async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as http:
                    assert (await http.get("/")).status_code == 200
        assert (await idle.get("/")).status_code == 200


async def test_beyond_the_most_connections_an_idle_one_makes_room_and_a_busy_one_does_not() -> None:
    limits = HttpLimits(connections=2)
    async with serving(reads_all, limits) as url, AsyncExitStack() as stack:
        one, two, three, four = [connected(url) for _ in range(4)]
        busy = await stack.enter_async_context(one)
        await busy.send(REQUEST.replace(b"/ ", b"/endless "))
        await busy.answer()
        idle = await stack.enter_async_context(two)
        await idle.send(REQUEST)
        await idle.answer()
        third = await stack.enter_async_context(three)
        await third.send(REQUEST.replace(b"/ ", b"/endless "))
        assert b"200 OK" in await third.answer()
        await idle.rest()  # it was closed
        fourth = await stack.enter_async_context(four)
        assert b"503 Service Unavailable" in await fourth.rest()


async def test_the_agent_server_and_the_pages_refuse_a_long_header(tmp_path: Path) -> None:
    async with (
        ScriptedOpenAI() as script,
        agent_server({"upstream": script.url}, ready=False) as url,
    ):
        assert b" 431 " in await too_long(url)
    async with web_site(tmp_path) as site:
        assert b" 431 " in await too_long(site.url)
