"""Model hub that behaves like Hugging Face's: it redirects to a signed URL on another host.

async with ModelHub(content) as hub:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    hub.breaks_after = 1_000
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, Self

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.kit.serving import serving

_PIECE = 1 << 14


class ModelHub:
    """Two servers on loopback ports; every file has the same content.

    The first sends size and SHA-256 of the file (`linked_size`, `sha256`; None: no such header) and
    redirects to the second, which supports ranges and ETags. A `status` other than 302 is answered
    by the first instead. After `breaks_after` bytes each connection of the second breaks. `asked`
    has the paths requested from the first, `ranges` the Range headers sent to the second.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.sha256: str | None = hashlib.sha256(content).hexdigest()
        self.linked_size: int | None = len(content)
        self.breaks_after: int | None = None
        self.breaks = 0
        self.status = 302
        self.headers: dict[str, str] = {}
        self.asked: list[str] = []
        self.ranges: list[str | None] = []
        self.url = ""
        self._store = ""
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        files = Starlette(routes=[Route("/signed/{key}", self._file)])
        self._store = await self._stack.enter_async_context(serving(files))
        path = "/{owner}/{repository}/resolve/{revision}/{file:path}"
        self.url = await self._stack.enter_async_context(
            serving(Starlette(routes=[Route(path, self._resolve)]))
        )
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self._stack.aclose()

    async def _resolve(self, request: Request) -> Response:
        self.asked.append(request.url.path)
        if self.status != 302:
            return Response("no", self.status, self.headers)
        headers = {}
        if self.linked_size is not None:
            headers["x-linked-size"] = str(self.linked_size)
        if self.sha256 is not None:
            headers["x-linked-etag"] = f'"{self.sha256}"'
        # The path changes with each request, like a signed URL.
        address = f"{self._store}/signed/{len(self.asked)}?Signature=abc"
        return RedirectResponse(address, 302, headers)

    async def _file(self, request: Request) -> Response:
        wanted = request.headers.get("range")
        self.ranges.append(wanted)
        tag = f'"{hashlib.sha256(self.content).hexdigest()[:32]}"'
        whole = len(self.content)
        begin = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        if request.headers.get("if-range", tag) != tag:
            begin = 0
        if begin and begin >= whole:
            return Response(status_code=416, headers={"content-range": f"bytes */{whole}"})
        headers = {"etag": tag, "accept-ranges": "bytes", "content-length": str(whole - begin)}
        if begin:
            headers["content-range"] = f"bytes {begin}-{whole - 1}/{whole}"
        return StreamingResponse(self._pieces(begin), 206 if begin else 200, headers)

    async def _pieces(self, begin: int) -> AsyncIterator[bytes]:
        """Yield the rest of the file, or its beginning and then break the connection.

        As the content is shorter than its Content-Length, the client notices.
        """
        end = len(self.content)
        if self.breaks_after is not None:
            end = min(end, begin + self.breaks_after)
        for at in range(begin, end, _PIECE):
            yield self.content[at : min(at + _PIECE, end)]
        if end < len(self.content):
            self.breaks += 1
            raise ConnectionError("the connection breaks here")
