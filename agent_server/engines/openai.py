"""An engine behind OpenAI-compatible URLs: vLLM, SGLang, llama-server, Ollama, a hosted API."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from agent_server.engine_protocol import Chunk, Chunks, ModelInfo, TokenCount
from agent_server.engines.errors import event_to_api_error
from agent_server.engines.model_descriptions import (
    coalesce_info,
    info_from_litellm,
    info_from_model_card,
    info_from_ollama,
    info_from_props,
    running_model,
    size_in,
)
from agent_server.engines.prompt_guard import CACHE_SALT
from agent_server.engines.upstream_pool import (
    FAILOVER_ERRORS,
    LINGER,
    Upstream,
    UpstreamConfig,
    UpstreamEngine,
    UpstreamRequest,
    UpstreamResponse,
)
from agent_server.errors import ApiError, EngineUnavailable, InvalidRequest, Unsupported

DONE = b"[DONE]"

FIXED_PARAMETERS = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
"""Parameters that are left out for a model that refuses them, as it has values of its own."""

MAX_CALLS = 128
"""Most tool calls of one answer."""

UNSUPPORTED_CODES = ("unsupported_parameter", "unsupported_value")
"""Codes of OpenAI's errors for a parameter, or a value of it, that a model does not take."""

SESSION_HEADER = "x-session-id"
"""The header by which a router in front of several engines keeps a conversation on one."""

_as_sent = with_config(ConfigDict(strict=True, extra="allow"))


@_as_sent
class _Function(TypedDict, total=False):
    name: str | None
    arguments: str | None


@_as_sent
class _Call(TypedDict, total=False):
    index: Annotated[int, Field(ge=0, lt=MAX_CALLS)] | None
    id: str | None
    function: _Function | None


@_as_sent
class _Delta(TypedDict, total=False):
    content: str | list[Any] | None
    reasoning_content: str | None
    reasoning: str | None
    refusal: str | None
    tool_calls: list[_Call] | None


@_as_sent
class _Choice(TypedDict, total=False):
    index: int | None
    delta: _Delta | None
    message: _Delta | None
    text: str | None
    logprobs: dict[str, Any] | None


@_as_sent
class _Chunk(TypedDict, total=False):
    choices: list[_Choice] | None


CHUNK = TypeAdapter[Any](_Chunk)
"""The types of the API in a chunk or a whole answer, as far as they are relied on."""


class OpenAIEngine(UpstreamEngine):
    """One model behind one or more base URLs.

    Without a configured `model` each upstream is asked for the first model that it lists, since
    servers of different kinds may name the same model differently.
    """

    def __init__(self, config: UpstreamConfig) -> None:
        super().__init__(config, {"authorization": f"Bearer {config.key}"} if config.key else {})
        self._urls = " ".join(config.urls)
        self._refused: dict[str | None, frozenset[str]] = {}

    @property
    def isolates_keys(self) -> bool:
        """True if all upstreams are vLLM, which caches per `cache_salt`."""
        return all(each.takes_salt for each in self._upstreams)

    async def chat(self, body: Mapping[str, Any], session: str | None) -> Chunks:
        """Stream the chunks of an answer.

        With `"stream": false` in `body` the upstream is asked for the whole answer.
        """
        answer = await self._begin(body, session)
        try:
            # Not every upstream streams, whatever it is asked, or says rightly what it sends.
            begun = await answer.peek()
            if begun.startswith(b"{"):
                whole = _parse(await answer.read_all())
                for choice in whole.get("choices") or ():
                    choice["delta"] = delta = choice.pop("message", None) or {}
                    for index, call in enumerate(delta.get("tool_calls") or ()):
                        # Calls have an index in a stream only.
                        call["index"] = index
                yield whole
                return
            if begun.startswith(b"<"):
                raise EngineUnavailable(
                    "the engine sent a web page instead of an answer; check MODEL_UPSTREAM"
                )
            finished = False
            while arrived := await answer.next_batch():
                for data in arrived:
                    if data and data != DONE:
                        chunk = _parse(data)
                        choices = chunk.get("choices") or ()
                        finished = finished or any(each.get("finish_reason") for each in choices)
                        yield chunk
                if DONE in arrived:
                    answer.close(LINGER)
                    return
            # A `finish_reason` without a final [DONE] is accepted as the end.
            if not finished:
                raise EngineUnavailable("the engine's answer broke off")
        finally:
            answer.close()

    async def _begin(self, body: Mapping[str, Any], session: str | None) -> UpstreamResponse:
        """Send a chat; again without the parameters that the model refuses. Raises ApiError."""
        path = "/v1/completions" if "prompt" in body else "/v1/chat/completions"
        headers = {}
        if session is not None:
            # A hash, as the name of a session may contain that of a channel.
            named = hashlib.blake2b(session.encode(), digest_size=16, person=b"session")
            headers = {SESSION_HEADER: named.hexdigest()}
        model = body.get("model") or self._model
        form: dict[str, Any] = {"stream": False, "model": model}
        if body.get("stream") is not False:
            form |= {"stream": True, "stream_options": {"include_usage": True}}
        while True:
            refused = self._refused.get(model, frozenset())
            asked = {key: value for key, value in body.items() if key not in refused} | form
            if "max_tokens" in refused and "max_tokens" in body:
                asked["max_completion_tokens"] = body["max_tokens"]
            try:
                return await self.send(
                    UpstreamRequest("POST", path, asked, session, headers, names_model=True)
                )
            except InvalidRequest as error:
                is_fixed = error.code in UNSUPPORTED_CODES and error.param in FIXED_PARAMETERS
                parameter = error.param if is_fixed else None
                # OpenAI's reasoning models know only the newer name of the limit.
                if "max_completion_tokens" in error.message:
                    parameter = "max_tokens"
                if parameter is None or parameter not in asked:
                    raise
                self._refused[model] = refused | {parameter}

    async def count(self, body: Mapping[str, Any]) -> TokenCount:
        """Count tokens with vLLM's `/tokenize`, or with llama.cpp's template and tokenizer."""
        return await self.try_each(
            lambda upstream: self._count(upstream, body), skipped=(*FAILOVER_ERRORS, Unsupported)
        )

    async def _count(self, upstream: Upstream, body: Mapping[str, Any]) -> TokenCount:
        unsalted = {key: value for key, value in body.items() if key != CACHE_SALT}
        asked = {**unsalted, "model": body.get("model") or self._model}
        if upstream.counts_chats:
            answer = await self._ask_json(_post("/tokenize", asked), upstream)
            if isinstance(count := answer.get("count"), int):
                limit = answer.get("max_model_len")
                known = limit if isinstance(limit, int) else None
                return TokenCount(tuple(answer.get("tokens") or ()), count, known)
            # llama.cpp: its `/tokenize` takes only text, and returns tokens without a count.
            upstream.counts_chats = False
        text = body.get("prompt")
        if text is None:
            text = (await self._ask_json(_post("/apply-template", asked), upstream)).get("prompt")
        bare = UpstreamRequest("POST", "/tokenize", {"content": text, "add_special": True})
        tokens = (await self._ask_json(bare, upstream)).get("tokens")
        if not isinstance(tokens, list):
            raise Unsupported("the engine behind this server does not count tokens")
        return TokenCount(tuple(tokens), len(tokens), None)

    async def responds(self, seconds: float) -> bool:
        """Return whether llama.cpp's main loop responds within `seconds`.

        `/slots` is answered by that loop; other paths respond even when it is stuck.
        """
        try:
            async with asyncio.timeout(seconds):
                answer = await self.send(UpstreamRequest("GET", "/slots"))
                await answer.read_all()
        except (TimeoutError, ApiError):
            return False
        return True

    async def embeddings(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Forward an embeddings request, to the model named in `body` or else the default."""
        asked = {**body, "model": body.get("model") or self._model}
        return await self._ask_json(_post("/v1/embeddings", asked))

    async def model_info(self, model: str | None = None) -> ModelInfo:
        """Read the list of models, then the details that other kinds of servers have."""
        model = model or self._model

        async def ask(upstream: Upstream) -> ModelInfo:
            cards = await self.cards(upstream)
            name = model or str(cards[0]["id"])
            found = info_from_model_card(next((card for card in cards if card["id"] == name), {}))
            if found.context is None:
                found = coalesce_info(await self._details(upstream, name), found)
            counts_tokens = False
            with suppress(ApiError):
                counted = await self._count(upstream, {"prompt": "hello", "model": name})
                counts_tokens, found = True, coalesce_info(found, ModelInfo(context=counted.limit))
            return replace(
                found,
                counts_tokens=counts_tokens,
                weights=name,
                parameters=found.parameters or size_in(name),
                identity=f"{name} at {self._urls}",
            )

        return await self.try_each(ask)

    async def _details(self, upstream: Upstream, name: str) -> ModelInfo:
        """Ask as one asks llama-server, Ollama and LiteLLM; others answer none of these."""

        async def ask(method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
            return await self._ask_json(UpstreamRequest(method, path, body), upstream)

        with suppress(ApiError):
            return info_from_props(await ask("GET", "/props"))
        with suppress(ApiError):
            shown = await ask("POST", "/api/show", {"model": name})
            running = None
            with suppress(ApiError):
                running = running_model(await ask("GET", "/api/ps"), name)
            return info_from_ollama(shown, running)
        with suppress(ApiError):
            return info_from_litellm(await ask("GET", "/v1/model/info"), name)
        return ModelInfo()


def _post(path: str, body: Mapping[str, Any]) -> UpstreamRequest:
    return UpstreamRequest("POST", path, body, names_model=True)


def _parse(data: bytes) -> Chunk:
    """Parse a chunk. Raises the ApiError that it carries, EngineUnavailable if it is malformed."""
    chunk: Chunk
    try:
        try:
            chunk = CHUNK.validate_json(data)
        except ValidationError:
            # An escaped lone surrogate, of an engine that splits a character between two chunks, is
            # no error; the strict parser rejects it.
            chunk = json.loads(data)
            CHUNK.validate_json(json.dumps(chunk, ensure_ascii=False).encode(errors="replace"))
    except (ValueError, RecursionError):
        raise EngineUnavailable("the engine sent something that is not a chunk") from None
    if chunk.get("error"):
        raise event_to_api_error(chunk["error"])
    if "choices" not in chunk and "message" in chunk:
        # An `error:` event of llama.cpp, whose data is the bare error object.
        raise event_to_api_error(chunk)
    for choice in chunk.get("choices") or ():
        delta = choice.get("delta") or choice.get("message") or {}
        if isinstance(parts := delta.get("content"), list):
            # Mistral's content in parts, of which some are thoughts.
            inner = [part.get("thinking") for part in parts if isinstance(part, dict)]
            thoughts = "".join(_text(each) for each in inner if isinstance(each, list))
            delta |= {"content": _text(parts), "reasoning_content": thoughts or None}
    return chunk


def _text(parts: list[Any]) -> str:
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "".join(text for text in texts if isinstance(text, str))
