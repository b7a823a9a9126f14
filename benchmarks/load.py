"""Load generator: sends one request repeatedly over many connections and times the answers.

Run as `python -m benchmarks.load`: reads an `Order` as one JSON line from standard input and prints
a `Tally` as JSON. It is a separate process and parses as little as possible, so that its own work
does not distort the measurement.
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
    """A load: `body` is posted to `url` `count` times in all, over `connections` connections."""

    url: str
    body: dict[str, Any]
    connections: int
    count: int
    key: str = ""


@dataclass(slots=True)
class Tally:
    """Measurements of a load: `seconds` in all, and by request the seconds to the first byte of
    the body (`first`) and to its end (`whole`)."""

    seconds: float = 0.0
    first: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    errors: int = 0


class Connection(asyncio.Protocol):
    """An HTTP connection that sends a request, reads its answer to the end, and sends the next.

    `left` is a list of one number, the requests still to send, shared by all connections.
    """

    def __init__(self, request: bytes, left: list[int], tally: Tally) -> None:
        self._request, self._left, self._tally = request, left, tally
        self._loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self._answered = False
        self._answer, self._body = bytearray(), -1
        self._length: int | None = None
        self._first = self._began = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request."""
        transport = cast(asyncio.Transport, transport)
        self._transport = transport
        self._next()

    def data_received(self, data: bytes) -> None:
        """Collect the answer; at its end, send the next request."""
        self._answer += data
        if self._body < 0 and not self._head():
            return
        if not self._first and len(self._answer) > self._body:
            self._first = time.perf_counter()
        # Without a content length the body is chunked. Chunks need not be parsed: those of events
        # end with a newline before their CRLF, so only the last one ends like LAST_CHUNK.
        if self._length is None:
            done = self._answer.endswith(LAST_CHUNK, self._body)
        else:
            done = len(self._answer) - self._body >= self._length
        if done:
            self._finish()

    def connection_lost(self, _error: Exception | None) -> None:
        """Count an unanswered request as an error; llama.cpp closes after each stream."""
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
    """Send all requests and return the tally after the last answer."""
    where = urlsplit(order.url)
    tally, left = Tally(), [order.count]
    request = _request(order, where.path, where.netloc)

    async def one() -> None:  # reconnects for as long as requests are left
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
    """Run the order from standard input and print the tally."""
    order = Order(**json.loads(sys.stdin.readline()))
    tally = uvloop.run(run(order))
    left = memoryview(json.dumps(asdict(tally)).encode())
    while left:  # `os.write` writes only what fits into the pipe
        left = left[os.write(sys.stdout.fileno(), left) :]


if __name__ == "__main__":
    main()
