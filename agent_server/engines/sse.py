"""Server-sent events, read from an engine.

Lines end at LF or CRLF only: a general line splitter would cut JSON at U+2028 or U+0085.
Source: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator


async def events(pieces: AsyncIterable[bytes]) -> AsyncIterator[str]:
    """Yield the data of each event in a stream of bytes cut anywhere."""
    data: list[str] = []
    async for line in _lines(pieces):
        if not line and data:
            yield "\n".join(data)
            data = []
        field, _, value = line.partition(b":")
        if field in (b"data", b"error"):
            data.append(value.removeprefix(b" ").decode("utf-8", "replace"))
    if data:
        yield "\n".join(data)


async def _lines(pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line.removesuffix(b"\r")
    if rest:
        yield rest
