"""An engine at an OpenAI-compatible base URL: llama-server, vLLM, Ollama, a hosted API."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

import httpx2
import structlog

from agent_server.engines.base import Chunk, Chunks, TokenCount
from agent_server.engines.faults import fault, fault_event
from agent_server.engines.sse import events
from agent_server.errors import (
    ApiError,
    EngineTimeout,
    EngineUnavailable,
    InvalidRequest,
    Unsupported,
)

log = structlog.get_logger()

JSON_TYPE = {"content-type": "application/json"}

OPTIONAL = (
    "/v1/models", "/v1/completions", "/v1/embeddings", "/tokenize", "/apply-template"
)  # fmt: skip
"""What an upstream may lack and still answer chats."""

UNNAMED = "default"
"""What an upstream that lists no models is asked for."""


class HttpEngine:
    """One model behind one or more base URLs (without `/v1`).

    A session stays on the URL its hash chooses, requests without one take turns; when a URL
    refuses the connection the next is asked. `model` None takes the first model the upstream
    lists. Connections are not reused: llama.cpp closes the socket after a stream though it
    advertises keep-alive.
    """

    def __init__(
        self, urls: Sequence[str], *, key: str | None, model: str | None, timeout: float
    ) -> None:
        self._urls = tuple(urls)
        self._key = key
        self._model = model
        self._timeout = timeout
        self._client: httpx2.AsyncClient | None = None
        self._turn = itertools.count()
        self._counts_chats = True  # until it turns out to be llama.cpp, which counts texts only

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Hold the HTTP client open."""
        async with httpx2.AsyncClient(
            headers={"authorization": f"Bearer {self._key}"} if self._key else {},
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
            timeout=httpx2.Timeout(self._timeout, connect=5, pool=None),
        ) as self._client:
            yield

    async def chat(self, body: Mapping[str, Any], session: str | None) -> Chunks:
        """Stream the chunks of an answer. Always a stream: only a stream can be cancelled."""
        model = await self._model_name()
        path = "/v1/completions" if "prompt" in body else "/v1/chat/completions"
        asked = {
            **body,
            "model": model,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        response = await self._send("POST", path, asked, session, stream=True)
        try:
            async with aclosing(_chunks(response)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except httpx2.ReadTimeout as error:
            raise EngineTimeout(f"the engine was silent for {self._timeout:g} s") from error
        except httpx2.TransportError as error:
            log.warning("engine.lost", error=type(error).__name__)
            raise EngineUnavailable("the engine went away in the middle of the answer") from error
        finally:
            await response.aclose()

    async def count(self, body: Mapping[str, Any]) -> TokenCount:
        """Count tokens as vLLM's /tokenize does, or with llama.cpp's template and tokenizer."""
        asked = {**body, "model": await self._model_name()}
        if self._counts_chats:
            answer = await self._json("POST", "/tokenize", asked)
            if "count" in answer:
                limit = answer.get("max_model_len")
                return TokenCount(tuple(answer.get("tokens") or ()), answer["count"], limit)
            self._counts_chats = False
        text = body.get("prompt")
        if text is None:
            text = (await self._json("POST", "/apply-template", asked))["prompt"]
        tokens = (await self._json("POST", "/tokenize", {"content": text, "add_special": True}))[
            "tokens"
        ]
        return TokenCount(tuple(tokens), len(tokens), None)

    async def embeddings(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Pass an embeddings request on; a model named in `body` stays, for upstreams of many."""
        model = body.get("model") or await self._model_name()
        return await self._json("POST", "/v1/embeddings", {**body, "model": model})

    async def ready(self) -> bool:
        """Whether the upstream lists its models: it is up and takes our key."""
        try:
            await self._json("GET", "/v1/models", None)
        except Unsupported:
            return True
        except ApiError:
            return False
        return True

    async def _model_name(self) -> str:
        if self._model is None:
            try:
                listed = (await self._json("GET", "/v1/models", None)).get("data") or []
            except Unsupported:
                listed = [{"id": UNNAMED}]
            if not listed:
                raise EngineUnavailable("the engine lists no model")
            self._model = str(listed[0]["id"])
        return self._model

    async def _json(self, method: str, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        response = await self._send(method, path, body, None, stream=False)
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise EngineUnavailable(f"the engine's {path} did not answer with a JSON object")
        return answer

    async def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        session: str | None,
        *,
        stream: bool,
    ) -> httpx2.Response:
        """Send to the first URL that accepts the connection; an error status is raised."""
        if self._client is None:
            raise EngineUnavailable("the engine is not started")
        content = None if body is None else _encoded(body)
        for url in self._order(session):
            request = self._client.build_request(
                method, f"{url}{path}", content=content, headers=JSON_TYPE
            )
            try:
                response = await self._client.send(request, stream=stream)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                log.warning("engine.unreachable", url=url)
                continue
            except httpx2.TimeoutException as error:
                raise EngineTimeout(f"the engine was silent for {self._timeout:g} s") from error
            except httpx2.TransportError as error:
                log.warning("engine.lost", error=type(error).__name__)
                raise EngineUnavailable("the engine went away before it answered") from error
            await _require_success(path, response)
            return response
        raise EngineUnavailable("no engine can be reached")

    def _order(self, session: str | None) -> tuple[str, ...]:
        if session is None:
            place = next(self._turn)
        else:
            place = int.from_bytes(hashlib.sha256(session.encode()).digest()[:8], "big")
        first = place % len(self._urls)
        return self._urls[first:] + self._urls[:first]


def _encoded(body: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
    except ValueError:
        # Infinity, NaN, or half of a surrogate pair.
        text = "the request holds a number or text that JSON cannot carry"
        raise InvalidRequest(text) from None


async def _require_success(path: str, response: httpx2.Response) -> None:
    if response.status_code == 200:
        return
    try:
        body = await response.aread()
    finally:
        await response.aclose()
    if response.status_code in (404, 405, 501) and path in OPTIONAL:
        raise Unsupported(f"the engine behind this server has no {path}")
    raise fault(response.status_code, body, response.headers)


async def _chunks(response: httpx2.Response) -> Chunks:
    if response.headers.get("content-type", "").startswith("application/json"):
        yield _as_chunk(_parse((await response.aread()).decode("utf-8", "replace")))
        return
    finished = False
    async for data in events(response.aiter_bytes()):
        if data == "[DONE]":
            return
        chunk: Chunk = _parse(data)
        finished = finished or any(c.get("finish_reason") for c in chunk.get("choices", ()))
        yield chunk
    if not finished:
        raise EngineUnavailable("the engine's answer broke off")


def _as_chunk(whole: Chunk) -> Chunk:
    """The answer of an upstream that does not stream, as the one chunk of a stream."""
    for choice in whole.get("choices", ()):
        choice["delta"] = delta = choice.pop("message", {})
        for index, call in enumerate(delta.get("tool_calls") or ()):
            call["index"] = index
    return whole


def _parse(data: str) -> Chunk:
    try:
        chunk = json.loads(data)
    except ValueError:
        raise EngineUnavailable("the engine sent something that is not JSON") from None
    if not isinstance(chunk, dict):
        raise EngineUnavailable("the engine sent something that is not a chunk")
    if chunk.get("error"):
        raise fault_event(chunk["error"])
    if "choices" not in chunk and "message" in chunk:
        raise fault_event(chunk)
    return chunk
