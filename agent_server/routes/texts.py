"""POST /v1/completions and /v1/embeddings: bare texts, continued or as vectors.

Sources: https://platform.openai.com/docs/api-reference/completions and
https://platform.openai.com/docs/api-reference/embeddings
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from pydantic_core import to_json
from starlette.responses import Response

from agent_server.engine_protocol import Chunk
from agent_server.engines.embeddings import NAME
from agent_server.http.responses import (
    Events,
    JsonBody,
    cancel_on_disconnect,
    openai_events,
    respond,
)
from agent_server.metering.request_context import HEADERS
from agent_server.routes.dependencies import EMBEDDINGS_PATH, BodyRoute, Context, Server
from agent_server.schemas.chat_answer import ChunkMeta, ModelAnswer, assemble
from agent_server.schemas.openapi import ERRORS, answers
from agent_server.schemas.texts import CompletionRequest, EmbeddingsRequest

router = APIRouter(route_class=BodyRoute, responses=ERRORS)

OBJECT_TYPE = "text_completion"


@router.post(
    "/v1/completions",
    responses=answers(
        "https://platform.openai.com/docs/api-reference/completions/object", stream=True
    ),
    openapi_extra=HEADERS,
)
async def completions(
    request: Request, body: CompletionRequest, server: Server, context: Context
) -> Response:
    """Continue one or more bare texts."""
    meta = partial(ChunkMeta, created=context.created, id=f"cmpl-{uuid.uuid4().hex}")
    return await respond(
        request,
        server.pool.complete(body, context),
        lambda answer: CompletionRenderer(body, meta(answer.model)),
        stream=body.stream,
    )


class CompletionRenderer:
    """Converts chat chunks to `text_completion` objects."""

    def __init__(self, request: CompletionRequest, meta: ChunkMeta) -> None:
        self._meta = meta
        self._top = request.logprobs or 0
        self._include_usage = bool(request.stream_options and request.stream_options.include_usage)
        self._echoes = request.echoes() if request.echo else []
        self._each = request.n or 1
        self._offsets: defaultdict[int, int] = defaultdict(int)

    async def whole(self, answer: ModelAnswer) -> dict[str, Any]:
        """Return the whole answer. Raises ApiError."""
        made = await assemble(answer, self._meta)
        choices = [self._choice({**each, "delta": each["message"]}) for each in made["choices"]]
        return {**self._meta.as_wire(OBJECT_TYPE), "choices": choices, "usage": made["usage"]}

    def events(self, answer: ModelAnswer) -> Events:
        """Yield the objects of a stream as events."""
        head = self._meta.as_wire(OBJECT_TYPE)

        def convert(chunk: Chunk) -> Iterator[Chunk]:
            choices = [self._choice(choice) for choice in chunk["choices"]]
            if any(choice["text"] or choice["finish_reason"] for choice in choices):
                yield {**head, "choices": choices}
            if chunk.get("usage") and self._include_usage:
                yield {**head, "choices": [], "usage": chunk["usage"]}

        return openai_events(answer, convert)

    def _choice(self, choice: Chunk) -> dict[str, Any]:
        index = choice["index"]
        text = choice["delta"].get("content") or ""
        # Each choice begins with its prompt; choices are numbered prompt by prompt, `n` for each.
        if self._echoes and index not in self._offsets:
            text = self._echoes[index // self._each] + text
        logprobs = self._logprobs(choice)
        self._offsets[index] += len(text)
        finish = choice.get("finish_reason")
        return {"text": text, "index": index, "logprobs": logprobs, "finish_reason": finish}

    def _logprobs(self, choice: Chunk) -> dict[str, Any] | None:
        """Convert the chat API's log probabilities to parallel lists, None if there are none."""
        content = (choice.get("logprobs") or {}).get("content")
        if not content:
            return None
        offsets, offset = [], self._offsets[choice["index"]]
        for entry in content:
            offsets.append(offset)
            offset += len(entry["token"])
        tops = [
            {top["token"]: top["logprob"] for top in entry.get("top_logprobs") or ()}
            for entry in content
        ]
        return {
            "tokens": [entry["token"] for entry in content],
            "token_logprobs": [entry["logprob"] for entry in content],
            # The engine was asked for one alternative where the client wants none (`logprobs: 0`).
            "top_logprobs": tops if self._top else None,
            "text_offset": offsets,
        }


@router.post(
    EMBEDDINGS_PATH,
    responses=answers("https://platform.openai.com/docs/api-reference/embeddings/create"),
    openapi_extra=HEADERS,
)
async def embeddings(
    request: Request, body: EmbeddingsRequest, server: Server, context: Context
) -> Response:
    """Embed texts, with this server's own model or at the upstream that `model` names."""
    body.require_known()
    own = body.model == NAME or (body.model is None and await server.embedder.ready())
    maker = server.embedder if own else server.pool.table.resolve(body.model)[0]
    work = maker.embeddings(body.as_wire(), context)
    made = await cancel_on_disconnect(request.receive, work)
    if not own:
        return JsonBody(made)
    # pydantic-core encodes up to 800,000 finite numbers in a tenth of the time for which the event
    # loop, and so every chat, would wait for the standard library.
    return Response(to_json(made), media_type="application/json")
