"""Web server on loopback that sends exact bytes chosen by a test, under any host name.

It counts connections, so that a test can assert that none was made. `PageServer.fetcher` can fetch
from it, unlike a default `Fetcher()`, which refuses loopback addresses.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address

from llm.web.addresses import AddressPolicy, Endpoint
from llm.web.fetcher import Fetcher, FetchLimits

Answer = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]
"""The bytes of a response, or a function that writes them."""

LIMITS = FetchLimits(size=100_000, time=1.0)
NO_LIMITS = FetchLimits(time=60.0)


def page(body: str | bytes, kind: str = "text/html; charset=utf-8", **headers: str) -> bytes:
    """Return a response with status 200."""
    data = body if isinstance(body, bytes) else body.encode()
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n{more}\r\n"
    return head.encode() + data


def redirect(location: str) -> bytes:
    """Return a redirect with status 302."""
    return f"HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()


@dataclass(slots=True)
class PageServer:
    """The server at `port`.

    `answers` maps "host/path" to responses (default: 404). `requests` has the "host/path" of all
    requests in order, `connections` their number.
    """

    port: int = 0
    answers: dict[str, Answer] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    connections: int = 0
    names: dict[str, list[str]] = field(default_factory=dict)
    """DNS answers by name, each with addresses separated by spaces, or empty for an unknown name.
    Each lookup takes the next answer; the last one is repeated."""

    async def resolve(self, host: str, port: int) -> Sequence[Endpoint]:
        """Return the DNS answer from `names`, or loopback for other names.

        Raises OSError for an empty answer.
        """
        said = self.names.get(host)
        if said is None:
            return [Endpoint("127.0.0.1", self.port)]
        address = said.pop(0) if len(said) > 1 else said[0]
        if not address:
            raise OSError("no such name")
        return [Endpoint(each, self.port) for each in address.split()]

    def fetcher(
        self, limits: FetchLimits = NO_LIMITS, tls: ssl.SSLContext | None = None
    ) -> Fetcher:
        """Return a fetcher that resolves names with `resolve` and may connect to 127.0.0.1."""
        policy = AddressPolicy(frozenset({ip_address("127.0.0.1")}), None)
        return Fetcher(policy, self.resolve, limits, tls)

    async def serve_client(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Answer one request and close the connection."""
        self.connections += 1
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            path = head.split()[1]
            host = next(x[5:].strip() for x in head.split("\r\n") if x.lower().startswith("host:"))
            where = f"{host.partition(':')[0]}{path}"
            self.requests.append(where)
            answer = self.answers.get(where, b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n")
            if isinstance(answer, bytes):
                writer.write(answer)
                await writer.drain()
            else:
                await answer(writer)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def page_server(
    tls: ssl.SSLContext | None = None, address: str = "127.0.0.1", port: int = 0
) -> AsyncIterator[PageServer]:
    """Run a server; close all connections on exit."""
    site, serving = PageServer(), set[asyncio.Task[None]]()

    def on_client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.create_task(site.serve_client(reader, writer)))

    server = await asyncio.start_server(on_client, address, port, ssl=tls)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
