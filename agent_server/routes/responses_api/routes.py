"""/v1/responses: answers made of items, kept so that a conversation can go on from them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from agent_server.engine_protocol import Chunks
from agent_server.errors import InvalidRequest, NotFound
from agent_server.http.json_encoding import JsonBody
from agent_server.http.streaming import cancel_on_disconnect, start_stream
from agent_server.metering.request_context import current_request
from agent_server.routes.dependencies import ModelPoolDep, Session
from agent_server.routes.responses_api.builder import ResponseBuilder
from agent_server.routes.responses_api.schemas import ResponseRequest
from agent_server.routes.responses_api.store import ResponseStore, StoredResponse
from agent_server.schemas.chat_answer import ChunkMeta
from agent_server.schemas.responses import DeletedResponse, ResponseBody, answers

router = APIRouter(prefix="/v1/responses")


async def _store(request: Request) -> ResponseStore:
    store = request.app.state.responses
    assert isinstance(store, ResponseStore)
    return store


TheStore = Annotated[ResponseStore, Depends(_store)]


@router.post("", response_model=None, responses=answers(ResponseBody, stream=True))
async def respond(
    request: Request, body: ResponseRequest, pool: ModelPoolDep, store: TheStore, session: Session
) -> Response:
    """Answer an input, as one response or as a stream of events."""
    owner, meta = current_request().key.name, ChunkMeta(pool.name, id=f"resp_{uuid.uuid4().hex}")
    before = _previous_response(store, owner, body.previous_response_id)
    history = before.messages if before else ()
    session = session or body.prompt_cache_key or (before.session if before else meta.id)

    def store_response(answer: ResponseBuilder) -> None:
        if body.store is not False:
            messages = [*history, *body.messages(), *answer.message()]
            store.save(owner, StoredResponse(answer.as_wire(), messages, session))

    answer = ResponseBuilder(body, meta, store_response)
    chunks = _rename_param(lambda: pool.answer(body.as_chat(history), meta, session))
    if body.stream:
        return await start_stream(request, chunks, answer.events)
    return JsonBody(await cancel_on_disconnect(request.receive, answer.whole(chunks)))


@router.get("/{identity}", response_model=None, responses=answers(ResponseBody))
async def retrieve(identity: str, store: TheStore, stream: bool = False) -> Response:
    """A response that was made before."""
    if stream:
        raise InvalidRequest("a response that is complete is not streamed again", param="stream")
    return JsonBody(
        _require_stored(store.get(current_request().key.name, identity), identity).response
    )


@router.delete("/{identity}", responses=answers(DeletedResponse))
async def delete(identity: str, store: TheStore) -> dict[str, Any]:
    """Forget a response, and the conversation that led to it."""
    if not store.delete(current_request().key.name, identity):
        _require_stored(None, identity)
    return {"id": identity, "object": "response", "deleted": True}


async def _rename_param(begin: Callable[[], Chunks]) -> Chunks:
    """The answer; an error about the messages is about the input that they were made of."""
    try:
        async with aclosing(begin()) as chunks:
            async for chunk in chunks:
                yield chunk
    except InvalidRequest as error:
        if error.param and error.param.startswith("messages"):
            error.param = "input"
        raise


def _require_stored(kept: StoredResponse | None, identity: str) -> StoredResponse:
    if kept is None:
        text = f"there is no response {identity!r} here: never kept, deleted, or too long ago"
        raise NotFound(text, param="response_id", code="response_not_found")
    return kept


def _previous_response(
    store: ResponseStore, owner: str, identity: str | None
) -> StoredResponse | None:
    if identity is None:
        return None
    kept = store.get(owner, identity)
    if kept is None:
        raise InvalidRequest(
            f"there is no response {identity!r} to follow: never kept, deleted, or too long ago",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    return kept
