"""How much others notice of clients that attack the agent server before they have shown a key.

A server of its own process, in front of a scripted model in ours. One client asks for `/v1/models`
all the time, first alone and then beside each attack; the goals are the ratio of its 95th
percentile to that of the quiet time in the same run, and how much the server's memory has grown.
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
    """For each attack the others' 95th percentile against the quiet one, and the memory."""
    async with (
        ScriptedOpenAI() as script,
        small_server(MODEL_UPSTREAM=script.url) as (http, _),
    ):
        (server,) = (
            each for each in psutil.Process().children(recursive=True) if "server" in each.cmdline()
        )
        await _p95(http)  # everything is loaded
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
    """Open many connections with half a header or half a body, and keep them."""
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
    """Send a hundred headers, a byte at a time."""
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
    """Send a header of 150 MB, or as much of it as is taken."""
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
    """Ask for one of 100,000 values, in a thread: the client that measures must not wait for it."""
    status = await asyncio.to_thread(_send_enum, http.base_url.host, http.base_url.port or 80)
    assert b" 413 " in status


def _send_enum(host: str, port: int) -> bytes:
    """Return the first line of the answer, which comes before the whole body has been read."""
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
