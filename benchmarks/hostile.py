"""Effect on other clients of attacks on the agent server by unauthenticated clients.

The server is a separate process in front of a scripted model in this one. A client requests
`/v1/models` continuously, first alone and then during each attack. The goals limit the ratio of its
95th percentile latency to the one without an attack in the same run, and the growth of the server's
memory.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import httpx2
import psutil

from benchmarks.figure import Figure, percentile
from benchmarks.small_server import small_server
from tests.kit.openai_script import ScriptedOpenAI

SECONDS = 8.0
CONNECTIONS = 1000
HEADER = b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\nx-long: "
BODY = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99\r\n\r\n"
MEGABYTE = b"x" * (1 << 20)
MOST_RATIO, MOST_GROWTH = 1.5, 30.0

LARGE_ENUM = json.dumps(
    {
        "messages": [{"role": "user", "content": "hi"}],
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "a",
                "schema": {"enum": [f"value {number}" for number in range(100_000)]},
            },
        },
    }
).encode()

ENUM_HEADER = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\n\r\n" % len(LARGE_ENUM)
)

Attack = Callable[[httpx2.AsyncClient], Awaitable[None]]


async def figures() -> AsyncIterator[Figure]:
    """Yield for each attack the ratio of the 95th percentiles, and the growth of memory."""
    async with (
        ScriptedOpenAI() as script,
        small_server(MODEL_UPSTREAM=script.url) as (http, _),
    ):
        (server,) = (
            each for each in psutil.Process().children(recursive=True) if "server" in each.cmdline()
        )
        await _p95(http)  # warm-up
        quiet, before = await _p95(http), server.memory_info().rss
        yield Figure("quiet: p95", quiet * 1000, "ms")
        for name, attack in ATTACKS.items():
            attacking = asyncio.create_task(_again(attack, http))
            beside = await _p95(http)
            attacking.cancel()
            await asyncio.wait({attacking})
            yield Figure(f"{name}: p95 to quiet", beside / quiet, "", goal=MOST_RATIO)
        grown = (server.memory_info().rss - before) / (1 << 20)
        yield Figure("memory growth", grown, "MB", goal=MOST_GROWTH)


async def _p95(http: httpx2.AsyncClient) -> float:
    times, until = [], time.perf_counter() + SECONDS
    while time.perf_counter() < until:
        began = time.perf_counter()
        (await http.get("/v1/models")).raise_for_status()
        times.append(time.perf_counter() - began)
        await asyncio.sleep(0.01)
    return percentile(times, 0.95)


async def _again(attack: Attack, http: httpx2.AsyncClient) -> None:
    while True:
        await attack(http)
        await asyncio.sleep(0.5)


async def _half_open(http: httpx2.AsyncClient) -> None:
    """Open CONNECTIONS connections with an incomplete header or a missing body, and keep them."""
    writers: list[asyncio.StreamWriter] = []
    try:
        for number in range(CONNECTIONS):
            with suppress(OSError):
                writer = await _connect(http)
                writer.write(HEADER if number % 2 else BODY)
                writers.append(writer)
            await asyncio.sleep(0.002)
        await asyncio.sleep(SECONDS)
    finally:
        for writer in writers:
            writer.close()


async def _slowloris(http: httpx2.AsyncClient) -> None:
    """Send a header over each of a hundred connections, one byte at a time."""
    writers = [await _connect(http) for _ in range(100)]
    try:
        for byte in HEADER:
            for writer in writers:
                writer.write(bytes([byte]))
            await asyncio.sleep(0.2)
    finally:
        for writer in writers:
            writer.close()


async def _long_header(http: httpx2.AsyncClient) -> None:
    """Send a header of 150 MB, or as much of it as the server accepts."""
    writer = await _connect(http)
    try:
        writer.write(HEADER)
        for _ in range(150):
            writer.write(MEGABYTE)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.transport.abort()


async def _large_enum(http: httpx2.AsyncClient) -> None:
    """Request a JSON schema with an enum of 100,000 values, and expect status 413.

    Sent from a thread, so that sending does not delay the measuring client on this event loop.
    """
    status = await asyncio.to_thread(_send_enum, http.base_url.host, http.base_url.port or 80)
    assert b" 413 " in status


def _send_enum(host: str, port: int) -> bytes:
    """Return the status line of the answer, which arrives before the whole body has been read."""
    with socket.create_connection((host, port), timeout=30) as connection:
        with suppress(ConnectionError):
            connection.sendall(ENUM_HEADER + LARGE_ENUM)
        return connection.makefile("rb").readline()


async def _connect(http: httpx2.AsyncClient) -> asyncio.StreamWriter:
    _, writer = await asyncio.open_connection(http.base_url.host, http.base_url.port)
    return writer


ATTACKS: dict[str, Attack] = {
    "slowloris": _slowloris,
    "header of 150 MB": _long_header,
    "1,000 half-open connections": _half_open,
    "enum of 100,000 values": _large_enum,
}
