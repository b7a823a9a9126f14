"""Sends the same request over many connections and times the answers.

Run as `python -m benchmarks.load`: one JSON line on standard input says what to do (an `Order`),
one on standard output what came of it (a `Tally`). It is a process of its own and parses next to
nothing, so that what is measured is not the measuring.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

import uvloop

HEAD_END = b"\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Order:
    """What to send, over how many connections at once, and how many times in all."""

    url: str
    body: dict[str, Any]
    connections: int
    count: int
    key: str = ""


@dataclass(slots=True)
class Tally:
    """Seconds from request to first byte of the body and to the end, request by request."""

    seconds: float = 0.0
    first: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    errors: int = 0


class Connection(asyncio.Protocol):
    """Sends a request, reads to the end of its answer, and sends the next."""

    def __init__(self, request: bytes, left: list[int], tally: Tally) -> None:
        self._request, self._left, self._tally = request, left, tally
        self._loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self._answered = False
        self._answer, self._body = bytearray(), -1
        self._length: int | None = None
        self._first = self._began = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        transport = cast(asyncio.Transport, transport)
        self._transport = transport
        self._next()

    def data_received(self, data: bytes) -> None:
        """Read on, until the end of the answer."""
        self._answer += data
        if self._body < 0 and not self._head():
            return
        if not self._first and len(self._answer) > self._body:
            self._first = time.perf_counter()
        if self._length is None:
            done = self._answer.endswith(LAST_CHUNK, self._body)
        else:
            done = len(self._answer) - self._body >= self._length
        if done:
            self._finish()

    def connection_lost(self, _error: Exception | None) -> None:
        """The server closed: llama.cpp does so after each stream."""
        if not self._answered:
            self._tally.errors += 1
        if not self.closed.done():
            self.closed.set_result(None)

    def _head(self) -> bool:
        end = self._answer.find(HEAD_END)
        if end < 0:
            return False
        self._body = end + len(HEAD_END)
        head = bytes(self._answer[:end]).lower()
        if not head.startswith(b"http/1.1 200"):
            self._tally.errors += 1
        _, found, rest = head.partition(b"content-length:")
        self._length = int(rest.partition(b"\r\n")[0]) if found else None
        return True

    def _finish(self) -> None:
        now = time.perf_counter()
        self._answered = True
        self._tally.whole.append(now - self._began)
        self._tally.first.append((self._first or now) - self._began)
        self._next()

    def _next(self) -> None:
        if not self._left[0]:
            self._transport.close()
            return
        self._left[0] -= 1
        self._answered = False
        self._answer, self._body = bytearray(), -1
        self._length, self._first = None, 0.0
        self._began = time.perf_counter()
        self._transport.write(self._request)


async def run(order: Order) -> Tally:
    """Send all, and wait for the last answer."""
    where = urlsplit(order.url)
    tally, left = Tally(), [order.count]
    request = _request(order, where.path, where.netloc)

    async def one() -> None:
        while left[0]:
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: Connection(request, left, tally), where.hostname or "", where.port or 80
            )
            await connection.closed

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(order.connections)))
    tally.seconds = time.perf_counter() - began
    return tally


def _request(order: Order, path: str, host: str) -> bytes:
    body = json.dumps(order.body).encode()
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: {host}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *([f"Authorization: Bearer {order.key}"] if order.key else ()),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def main() -> None:
    """Do what standard input says."""
    order = Order(**json.loads(sys.stdin.readline()))
    tally = uvloop.run(run(order))
    left = memoryview(json.dumps(asdict(tally)).encode())
    while left:  # an unbuffered standard output takes what fits into the pipe
        left = left[os.write(sys.stdout.fileno(), left) :]


if __name__ == "__main__":
    main()
