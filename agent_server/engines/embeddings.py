"""The embedding model as an engine: its child process, and the embeddings API on top of it."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import sys
from array import array
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import structlog

from agent_server.engine_protocol import Engine
from agent_server.engines.embeddings_child import MAX_TEXT_TOKENS
from agent_server.errors import (
    ContextLengthExceeded,
    EngineUnavailable,
    InvalidRequest,
    Unsupported,
)
from agent_server.http.responses import to_json
from agent_server.model_files import embedder
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


class EmbeddingEngine(Engine):
    """One child process, started by the first request and again after it has exited.

    `models` is the folder of model files, in which the embedding model may be missing.
    """

    def __init__(self, models: Path) -> None:
        self._models = models
        self._process: Process | None = None
        self._answers: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._ids = itertools.count()
        self._starting = asyncio.Lock()

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """End the child process when the block ends."""
        try:
            yield
        finally:
            process, self._process = self._process, None
            if process is not None:
                await end_child(process, TERMINATE_TIMEOUT)
            if self._answers is not None:
                await self._answers

    async def embeddings(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Answer `{"input", "encoding_format", "dimensions"?, "input_type"?,
        "truncate_prompt_tokens"?}`. Raises ApiError."""
        given = body["input"]
        texts = [given] if isinstance(given, str) else given
        if not all(isinstance(text, str) for text in texts):
            text = f"{NAME} has other tokens than yours; send texts"
            raise InvalidRequest(text, param="input", code="unsupported_value")
        if body.get("dimensions", DIMENSIONS) != DIMENSIONS:
            text = f"{NAME} has {DIMENSIONS} dimensions and cannot have fewer"
            raise InvalidRequest(text, param="dimensions", code="unsupported_value")
        vectors, tokens = b"", 0
        for start, batch in _batches(texts):
            made = await self._embed(
                {
                    "texts": batch,
                    "query": body.get("input_type") == "query",
                    "max_tokens": body.get("truncate_prompt_tokens"),
                }
            )
            if "too_long" in made:
                place = start + made["too_long"]
                text = f"input[{place}] is longer than {MAX_TEXT_TOKENS} tokens"
                raise ContextLengthExceeded(text, param=f"input[{place}]")
            vectors += base64.b64decode(made["vectors"])
            tokens += made["tokens"]
        size, data = DIMENSIONS * 4, []
        for index, at in enumerate(range(0, len(vectors), size)):
            piece: Any = base64.b64encode(vectors[at : at + size]).decode()
            if body["encoding_format"] == "float":
                numbers = array("f", vectors[at : at + size])
                if sys.byteorder == "big":  # the child writes little-endian floats
                    numbers.byteswap()
                piece = numbers.tolist()
            data.append({"object": "embedding", "index": index, "embedding": piece})
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {"object": "list", "data": data, "model": NAME, "usage": usage}

    async def ready(self) -> bool:
        """Return whether the files of the embedding model are there."""
        return embedder.find(self._models) is not None

    async def _embed(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        number = next(self._ids)
        answer = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            async with self._starting:
                process = self._process
                if process is None:
                    files = embedder.find(self._models)
                    if files is None:
                        raise Unsupported(
                            "this server lacks its embedding model; `terrarium model pull` fetches"
                            " it"
                        )
                    self._process = process = await asyncio.create_subprocess_exec(
                        sys.executable, "-m", "agent_server.engines.embeddings_child",
                        str(files.library), str(files.weights),
                        stdin=PIPE, stdout=PIPE, start_new_session=True, limit=MAX_LINE_BYTES,
                    )  # fmt: skip
                    self._answers = asyncio.create_task(self._deliver(process))
                    log.info("embeddings.started", pid=process.pid)
            assert process.stdin is not None
            process.stdin.write(to_json({"id": number, **asked}) + b"\n")
            await process.stdin.drain()
            made: dict[str, Any] = await answer
        except OSError as error:
            raise _unavailable() from error
        finally:
            # An answer that comes after its client has left is for nobody.
            del self._waiting[number]
        return made

    async def _deliver(self, process: Process) -> None:
        """Give each answer of the child to its request, until the child has ended."""
        assert process.stdout is not None
        with suppress(asyncio.IncompleteReadError):  # the end of the output, even within a line
            while True:
                made = json.loads(await process.stdout.readuntil(b"\n"))
                answer = self._waiting.get(made["id"])
                if answer is not None and not answer.done():
                    answer.set_result(made)
        if self._process is process:
            log.warning("embeddings.exited")
            self._process = None
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(_unavailable())
        await process.wait()


def _unavailable() -> EngineUnavailable:
    return EngineUnavailable("the embedding model went away; try again in a moment")


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
