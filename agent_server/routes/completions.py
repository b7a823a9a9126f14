"""POST /v1/completions: the continuation of bare texts, by OpenAI's legacy API.

Source: https://platform.openai.com/docs/api-reference/completions
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import AsyncIterable, Iterator, Mapping
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from agent_server.engine_protocol import Chunk
from agent_server.errors import ApiError
from agent_server.http.responses import (
    DONE,
    Events,
    JsonBody,
    cancel_on_disconnect,
    log_stream_error,
    sse_event,
    start_stream,
)
from agent_server.metering.request_context import HEADERS
from agent_server.routes.dependencies import Context, ModelPoolDep
from agent_server.routes.fast_route import FastRoute
from agent_server.schemas.chat_answer import ChunkMeta, ModelAnswer, assemble
from agent_server.schemas.completions import CompletionRequest
from agent_server.schemas.responses import TextCompletion, answers

router = APIRouter(prefix="/v1", route_class=FastRoute)

OBJECT_TYPE = "text_completion"


@router.post(
    "/completions",
    response_model=None,
    responses=answers(TextCompletion, stream=True),
    openapi_extra=HEADERS,
)
async def completions(
    request: Request, body: CompletionRequest, pool: ModelPoolDep, context: Context
) -> Response:
    """Continue one or more bare texts."""

    def renderer(answer: ModelAnswer) -> CompletionRenderer:
        meta = ChunkMeta(answer.model, context.created, f"cmpl-{uuid.uuid4().hex}")
        return CompletionRenderer(body, meta)

    async def whole() -> dict[str, Any]:
        answer = await pool.complete(body, context)
        made = renderer(answer)
        return made.whole(await assemble(answer, made.meta))

    if body.stream:
        starting = pool.complete(body, context)
        return await start_stream(
            request.receive, starting, lambda answer: renderer(answer).events(answer)
        )
    return JsonBody(await cancel_on_disconnect(request.receive, whole()))


class CompletionRenderer:
    """Converts chat chunks, or a whole assembled chat answer, to `text_completion` objects."""

    def __init__(self, request: CompletionRequest, meta: ChunkMeta) -> None:
        self.meta = meta
        self._top = request.logprobs or 0
        self._include_usage = bool(request.stream_options and request.stream_options.include_usage)
        self._echoes = request.echoes() if request.echo else []
        self._each = request.n or 1
        self._offsets: defaultdict[int, int] = defaultdict(int)

    async def events(self, chunks: AsyncIterable[Chunk]) -> Events:
        """Yield the events of a stream."""
        try:
            async for chunk in chunks:
                for part in self._parts(chunk):
                    yield sse_event(part)
        except ApiError as error:
            yield sse_event(log_stream_error(error).as_wire())
            return
        yield DONE

    def whole(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Return the whole answer, converted from an assembled chat answer."""
        choices = [
            self._choice({**choice, "delta": choice["message"]}) for choice in answer["choices"]
        ]
        return {**self.meta.as_wire(OBJECT_TYPE), "choices": choices, "usage": answer["usage"]}

    def _parts(self, chunk: Chunk) -> Iterator[Chunk]:
        choices = [self._choice(choice) for choice in chunk["choices"]]
        if any(choice["text"] or choice["finish_reason"] for choice in choices):
            yield {**self.meta.as_wire(OBJECT_TYPE), "choices": choices}
        if chunk.get("usage") and self._include_usage:
            yield {**self.meta.as_wire(OBJECT_TYPE), "choices": [], "usage": chunk["usage"]}

    def _choice(self, choice: Chunk) -> dict[str, Any]:
        index = choice["index"]
        text = choice["delta"].get("content") or ""
        # Each choice begins with its prompt; choices are numbered prompt by prompt, `n` for each.
        if self._echoes and index not in self._offsets:
            text = self._echoes[index // self._each] + text
        logprobs = _to_legacy_logprobs(
            (choice.get("logprobs") or {}).get("content"), self._offsets[index]
        )
        # The engine was asked for one alternative where the client wants none (`logprobs: 0`).
        if logprobs and not self._top:
            logprobs["top_logprobs"] = None
        self._offsets[index] += len(text)
        finish = choice.get("finish_reason")
        return {"text": text, "index": index, "logprobs": logprobs, "finish_reason": finish}


def _to_legacy_logprobs(
    content: list[Mapping[str, Any]] | None, offset: int
) -> dict[str, Any] | None:
    """Convert the chat API's log probabilities to parallel lists.

    `offset` is the number of characters before them; None if there are no log probabilities.
    """
    if not content:
        return None
    offsets = []
    for entry in content:
        offsets.append(offset)
        offset += len(entry["token"])
    return {
        "tokens": [entry["token"] for entry in content],
        "token_logprobs": [entry["logprob"] for entry in content],
        "top_logprobs": [
            {top["token"]: top["logprob"] for top in entry.get("top_logprobs") or ()}
            for entry in content
        ],
        "text_offset": offsets,
    }
