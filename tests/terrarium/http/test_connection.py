"""The connections to an engine, against sockets that do what engines and proxies do."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from terrarium.config import ConfigError
from terrarium.http.client import (
    MAX_BUFFERED,
    ConnectFailed,
    ConnectionBroken,
    HttpConnection,
)
from terrarium.http.client import ConnectionPool as Pool
from terrarium.sockets import listen
from tests.kit.certificates import certificate

Speak = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

PATIENCE = 10.0
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nword\r\n"
STREAM_END = b"0\r\n\r\n"
HEADER_END = b"\r\n\r\n"


class Peer:
    """Counts the connections it gets, and keeps the heads of the requests on them. It gives each
    the same answer, after which it may close the connection, or speaks for itself."""

    def __init__(
        self, speak: Speak | None = None, answer: bytes = OK, *, closes: bool = False
    ) -> None:
        self.connections = 0
        self.heads: list[str] = []
        self.url = ""
        self._speak, self._answer, self._closes = speak, answer, closes

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                self.heads.append((await reader.readuntil(HEADER_END)).decode())
                if self._speak:
                    await self._speak(reader, writer)
                else:
                    writer.write(self._answer)
                if self._closes:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has left
        finally:
            writer.close()


@asynccontextmanager
async def serving(peer: Peer, tls: ssl.SSLContext | None = None) -> AsyncIterator[Peer]:
    listener = listen("127.0.0.1", 0)
    peer.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with await asyncio.start_server(peer.serve, sock=listener, ssl=tls):
        yield peer


@asynccontextmanager
async def answering(answer: bytes, *, closes: bool = False) -> AsyncIterator[tuple[Peer, Pool]]:
    """A peer that gives this answer, and the connections to it."""
    peer = Peer(answer=answer, closes=closes)
    async with serving(peer), connections(peer.url) as to:
        yield peer, to


@asynccontextmanager
async def connections(url: str, **headers: str) -> AsyncIterator[Pool]:
    made = Pool(url, headers, patience=PATIENCE)
    try:
        yield made
    finally:
        await made.close()


async def body(connection: HttpConnection) -> bytes:
    """The whole body; the connection is free again."""
    found = bytearray()
    while piece := await connection.read():
        found += piece
    connection.release()
    return bytes(found)


async def test_one_connection_takes_request_after_request_and_two_at_once_have_one_each() -> None:
    async with serving(Peer()) as peer, connections(peer.url) as to:
        assert [await body(await to.request("GET", "/", None)) for _ in range(3)] == [b"ok"] * 3
        assert peer.connections == 1
        one, two = await to.request("GET", "/1", None), await to.request("GET", "/2", None)
        assert await body(one) == await body(two) == b"ok"
    assert peer.connections == 2


async def test_a_connection_that_the_engine_closed_is_not_asked_again() -> None:
    async with answering(OK, closes=True) as (peer, to):
        assert [await body(await to.request("GET", "/", None)) for _ in range(3)] == [b"ok"] * 3
    assert peer.connections == 3


async def test_a_request_that_met_a_closing_connection_is_sent_again() -> None:
    async def second_time(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(peer.heads) == 2:
            raise ConnectionResetError  # having read the request, without a byte of an answer
        writer.write(OK)

    async with serving(Peer(second_time)) as peer, connections(peer.url) as to:
        assert await body(await to.request("GET", "/first", None)) == b"ok"
        assert await body(await to.request("GET", "/second", None)) == b"ok"
    assert [head.split()[1] for head in peer.heads] == ["/first", "/second", "/second"]


async def test_a_request_that_a_new_connection_loses_is_not_sent_again() -> None:
    async with answering(b"", closes=True) as (peer, to):
        with pytest.raises(ConnectionBroken):
            await to.request("GET", "/", None)
    assert len(peer.heads) == 1


async def test_a_body_without_a_length_ends_with_its_connection() -> None:
    async with answering(b"HTTP/1.1 200 OK\r\n\r\nall there is", closes=True) as (_, to):
        assert await body(await to.request("GET", "/", None)) == b"all there is"


async def test_a_body_that_is_cut_short_is_broken_after_what_came_of_it() -> None:
    async with answering(STREAM, closes=True) as (_, to):
        connection = await to.request("GET", "/", None)
        assert await connection.read() == b"word"
        with pytest.raises(ConnectionBroken):
            await connection.read()
        connection.release()


async def test_a_note_before_the_answer_is_passed_over() -> None:
    async with answering(b"HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\n" + OK) as (_, to):
        connection = await to.request("POST", "/", b"{}")
        assert (connection.status, await body(connection)) == (200, b"ok")


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-OpenSSH\r\n", b"HTTP/1.1 200 OK\r\nA: " + b"a" * 2**20]
)
async def test_what_is_no_answer_breaks_the_connection(answer: bytes) -> None:
    async with answering(answer) as (_, to):
        with pytest.raises(ConnectionBroken):
            await to.request("GET", "/", None)


async def test_bytes_that_nobody_asked_for_end_the_connection() -> None:
    async with answering(OK + b"HTTP/1.1 200 OK\r\n") as (peer, to):
        assert await body(await to.request("GET", "/", None)) == b"ok"
        assert await body(await to.request("GET", "/", None)) == b"ok"
    assert peer.connections == 2


async def test_a_fast_engine_waits_for_a_slow_reader() -> None:
    size = 32 * MAX_BUFFERED

    async def pour(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(32):
            writer.write(bytes(MAX_BUFFERED))
            await writer.drain()
        poured.set()

    poured = asyncio.Event()
    async with serving(Peer(pour)) as peer, connections(peer.url) as to:
        connection = await to.request("GET", "/", None)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(poured.wait(), 0.5)
        piece = await connection.read()
        assert len(piece) < 2 * MAX_BUFFERED
        assert len(piece) + len(await body(connection)) == size


async def test_a_stream_that_ends_soon_after_its_last_event_keeps_its_connection() -> None:
    async def late(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM)
        await left.wait()
        writer.write(STREAM_END)
        await writer.drain()

    left = asyncio.Event()
    async with serving(Peer(late)) as peer, connections(peer.url) as to:
        connection = await to.request("GET", "/", None)
        connection.release(PATIENCE)
        left.set()
        async with asyncio.timeout(PATIENCE):
            while not to.idle:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await body(await to.request("GET", "/", None))
    assert peer.connections == 1


async def test_a_stream_that_does_not_end_is_broken_off() -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(STREAM)
        assert await reader.read() == b""
        gone.set()
        raise ConnectionResetError

    gone = asyncio.Event()
    async with serving(Peer(endless)) as peer, connections(peer.url) as to:
        (await to.request("GET", "/", None)).release(0.01)
        await asyncio.wait_for(gone.wait(), PATIENCE)


async def test_a_user_in_the_address_is_told_to_the_engine() -> None:
    async with serving(Peer()) as peer:
        url = peer.url.replace("http://", "http://ada:p%40ss@") + "/base"
        async with connections(url) as to:
            await body(await to.request("GET", "/v1/models", None))
    (head,) = peer.heads
    assert head.startswith("GET /base/v1/models HTTP/1.1\r\n")
    assert f"\r\nhost: {peer.url.removeprefix('http://')}\r\n" in head
    assert "\r\nauthorization: Basic YWRhOnBAc3M=\r\n" in head
    # A key with a line break would be further headers.
    with pytest.raises(ConfigError, match="authorization"):
        Pool("http://engine.test", {"authorization": "Bearer a\r\nb: c"}, patience=1)


@pytest.mark.server
async def test_an_address_where_nobody_listens_is_unreachable() -> None:
    listener = listen("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.close()
    async with connections(url) as to:
        with pytest.raises(ConnectFailed):
            await to.request("GET", "/", None)


def proxying(target: Peer) -> Speak:
    """Grants each CONNECT request a way to `target`."""

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = int(target.url.rpartition(":")[2])
        inner, outer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_copy(reader, outer))
                tasks.create_task(_copy(inner, writer))
        finally:
            outer.close()
        raise ConnectionResetError

    return speak


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(1 << 16):
        writer.write(piece)
    if writer.can_write_eof():
        writer.write_eof()


async def test_tls_goes_through_the_proxy_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = certificate(tmp_path, "engine.test")
    async with serving(Peer(), made.server()) as engine, serving(Peer(proxying(engine))) as proxy:
        monkeypatch.setenv("SSL_CERT_FILE", str(made.path))
        monkeypatch.setenv("https_proxy", proxy.url.replace("//", "//ada:pass@"))
        async with connections("https://engine.test") as to:
            assert [await body(await to.request("GET", "/", None)) for _ in range(2)] == [b"ok"] * 2
    assert engine.connections == proxy.connections == 1
    assert proxy.heads[0].startswith("CONNECT engine.test:443 HTTP/1.1\r\n")
    assert "\r\nproxy-authorization: Basic YWRhOnBhc3M=\r\n" in proxy.heads[0]
    assert "proxy-authorization" not in engine.heads[0]


async def test_a_certificate_for_another_name_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = certificate(tmp_path)
    async with serving(Peer(), made.server()) as engine, serving(Peer(proxying(engine))) as proxy:
        monkeypatch.setenv("SSL_CERT_FILE", str(made.path))
        monkeypatch.setenv("https_proxy", proxy.url)
        async with connections("https://engine.test") as to:
            with pytest.raises(ConnectFailed, match="SSLCertVerificationError"):
                await to.request("GET", "/", None)
    assert engine.heads == []


async def test_a_proxy_that_refuses_makes_it_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"
    async with serving(Peer(answer=answer)) as proxy:
        monkeypatch.setenv("https_proxy", proxy.url)
        async with connections("https://engine.test") as to:
            with pytest.raises(ConnectFailed):
                await to.request("GET", "/", None)


async def test_plain_requests_tell_a_proxy_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(Peer()) as proxy, serving(Peer()) as engine:
        monkeypatch.setenv("http_proxy", proxy.url)
        async with connections(engine.url) as to:  # never what is on this machine
            assert await body(await to.request("GET", "/", None)) == b"ok"
        assert proxy.heads == []
        async with connections("http://engine.test:8000/base") as to:
            assert await body(await to.request("GET", "/v1/models", None)) == b"ok"
    assert proxy.heads[0].startswith("GET http://engine.test:8000/base/v1/models HTTP/1.1\r\n")
    assert "\r\nhost: engine.test:8000\r\n" in proxy.heads[0]
