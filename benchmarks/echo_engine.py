"""OpenAI API that answers immediately, so that a reply's latency is the tendril's own."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass
class EchoEngine:
    """A minimal HTTP server for chats, token counts and the list of models.

    `url` is its base URL; `took` has the milliseconds from request to answer of each chat. An
    answer repeats the last line of the question, so that it can be attributed.
    """

    url: str = ""
    took: list[float] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one keep-alive connection in order."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                began = time.perf_counter()
                length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
                body = json.loads(await reader.readexactly(length)) if length else {}
                path = head.split(b" ")[1]
                kind, answer = _answer(path, body)
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n%s"
                    % (kind, len(answer), answer)
                )
                await writer.drain()
                if b"completions" in path:
                    self.took.append((time.perf_counter() - began) * 1000)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client closed the connection
        finally:
            writer.close()


@asynccontextmanager
async def echo_engine() -> AsyncIterator[EchoEngine]:
    """Serve an `EchoEngine` on a free port."""
    engine = EchoEngine()
    server = await asyncio.start_server(engine.serve, "127.0.0.1", 0, limit=1 << 24)
    async with server:
        engine.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield engine


def _answer(path: bytes, body: dict[str, Any]) -> tuple[bytes, bytes]:
    if b"completions" in path:
        return b"text/event-stream", _chat(str(body["messages"][-1]["content"]))
    if b"tokenize" in path:
        count = len(json.dumps(body)) // 4
        return b"application/json", json.dumps({"count": count, "max_model_len": 32768}).encode()
    model = {"id": "instant", "object": "model", "max_model_len": 32768}
    return b"application/json", json.dumps({"object": "list", "data": [model]}).encode()


def _chat(question: str) -> bytes:
    frame: dict[str, Any] = {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": "instant",
    }
    text = question.rstrip().rpartition("\n")[2][-80:]
    delta = {"index": 0, "delta": {"content": f"pong {text}"}, "finish_reason": None}
    end = {"index": 0, "delta": {}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    chunks: list[dict[str, Any]] = [
        {"choices": [delta]},
        {"choices": [end]},
        {"choices": [], "usage": usage},
    ]
    lines = [f"data: {json.dumps(frame | chunk)}\n\n" for chunk in chunks]
    return ("".join(lines) + "data: [DONE]\n\n").encode()
