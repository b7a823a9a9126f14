"""Engine without latency: an OpenAI chat API on bare asyncio with a fixed answer.

Run as `python -m benchmarks.instant_engine`; prints its URL and serves until standard input
closes. A streamed request with `"max_tokens": N`, N > 1, is paced: N events, `PACE` seconds apart.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import cast

import uvloop

from terrarium.sockets import listen

PACE = 0.01  # seconds
WORDS = ["The", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog."]
USAGE = {"prompt_tokens": 12, "completion_tokens": len(WORDS), "total_tokens": 12 + len(WORDS)}
NAME = "instant"


def _head(kind: str) -> dict[str, object]:
    return {"id": "chatcmpl-1", "object": kind, "created": int(time.time()), "model": NAME}


def _event(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {**_head("chat.completion.chunk"), "choices": [choice]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def _answer(kind: bytes, body: bytes, status: bytes = b"200 OK") -> bytes:
    size = str(len(body)).encode()
    return (
        b"HTTP/1.1 " + status + b"\r\nContent-Type: " + kind + b"\r\nContent-Length: " + size
        + b"\r\n\r\n" + body
    )  # fmt: skip


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


_MESSAGE = {"role": "assistant", "content": " ".join(WORDS)}
_CHOICE = {"index": 0, "message": _MESSAGE, "finish_reason": "stop"}
WHOLE = _answer(
    b"application/json",
    json.dumps({**_head("chat.completion"), "choices": [_CHOICE], "usage": USAGE}).encode(),
)
MODELS = _answer(
    b"application/json",
    json.dumps({"object": "list", "data": [{"id": NAME, "object": "model"}]}).encode(),
)
MISSING = _answer(b"application/json", b"{}", b"404 Not Found")
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
WORD = _chunk(_event({"content": " fox"}))
LAST = _chunk(
    _event({}, "stop")
    + b"data: " + json.dumps(
        {**_head("chat.completion.chunk"), "choices": [], "usage": USAGE}
    ).encode()
    + b"\n\ndata: [DONE]\n\n"
) + b"0\r\n\r\n"  # fmt: skip
AT_ONCE = STREAM + _chunk(b"".join(_event({"content": f" {word}"}) for word in WORDS)) + LAST


class Engine(asyncio.Protocol):
    """The server's side of one HTTP connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start with an empty buffer."""
        transport = cast(asyncio.Transport, transport)
        self._transport, self._read, self._gone = transport, b"", False

    def connection_lost(self, _error: Exception | None) -> None:
        """Stop paced streams."""
        self._gone = True

    def data_received(self, data: bytes) -> None:
        """Answer each complete request in the buffer."""
        self._read += data
        while (end := self._read.find(b"\r\n\r\n")) >= 0:
            head = self._read[:end].lower()
            _, found, rest = head.partition(b"content-length:")
            size = end + 4 + (int(rest.partition(b"\r\n")[0]) if found else 0)
            if len(self._read) < size:
                return
            body, self._read = self._read[end + 4 : size], self._read[size:]
            self._reply(head, body)

    def _reply(self, head: bytes, body: bytes) -> None:
        path = head.split(b" ", 2)[1]
        if path == b"/v1/models":
            self._transport.write(MODELS)
        elif path != b"/v1/chat/completions":
            self._transport.write(MISSING)
        else:
            asked = json.loads(body)
            events = asked.get("max_tokens") or 1
            if not asked.get("stream"):
                self._transport.write(WHOLE)
            elif events == 1:
                self._transport.write(AT_ONCE)
            else:
                self._transport.write(STREAM)
                self._pace(events)

    def _pace(self, left: int) -> None:
        if self._gone:
            return
        if not left:
            self._transport.write(LAST)
            return
        self._transport.write(WORD)
        asyncio.get_running_loop().call_later(PACE, self._pace, left - 1)


async def serve() -> None:
    """Serve until standard input closes."""
    listener = listen("127.0.0.1", 0)
    server = await asyncio.get_running_loop().create_server(Engine, sock=listener)
    print(f"http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
    async with server:
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(serve())
