"""An engine behind OpenAI-compatible URLs: vLLM, SGLang, llama-server, Ollama, a hosted API."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from agent_server.engine_protocol import Chunk, Chunks, ModelInfo, TokenCount
from agent_server.engines.cache_salt import CACHE_SALT
from agent_server.engines.capability_probe import (
    coalesce_info,
    info_from_litellm,
    info_from_model_card,
    info_from_ollama,
    info_from_props,
    running_model,
    size_in,
)
from agent_server.engines.errors import event_to_api_error
from agent_server.engines.upstream_pool import (
    FAILOVER_ERRORS,
    SseStream,
    Upstream,
    UpstreamEngine,
    UpstreamRequest,
    UpstreamResponse,
    parse_json,
)
from agent_server.errors import ApiError, EngineUnavailable, InvalidRequest, Unsupported


def merge_chunks(chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Merge consecutive chunks that have only text, of the same choice. Changes the chunks."""
    held: Chunk | None = None
    for chunk in chunks:
        if not _is_text(chunk):
            if held is not None:
                yield held
            held = None
            yield chunk
        elif held is None:
            held = chunk
        elif held["choices"][0].get("index") == chunk["choices"][0].get("index"):
            held["choices"][0]["delta"]["content"] += chunk["choices"][0]["delta"]["content"]
        else:
            yield held
            held = chunk
    if held is not None:
        yield held


def _is_text(chunk: Chunk) -> bool:
    """Return whether a chunk has text of one choice and nothing else."""
    choices = chunk.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or chunk.get("usage"):
        return False
    choice = choices[0]
    if not isinstance(choice, dict) or choice.get("finish_reason") or choice.get("logprobs"):
        return False
    delta = choice.get("delta")
    return isinstance(delta, dict) and len(delta) == 1 and isinstance(delta.get("content"), str)


DONE = b"[DONE]"

FIXED_PARAMETERS = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
"""Parameters that are left out for a model that refuses them, as it has values of its own."""

TEXTS = ("content", "reasoning_content", "reasoning", "refusal")
"""The keys of texts in a delta or message."""

MAX_CALLS = 128
"""Most tool calls of one answer."""

UNSUPPORTED_CODES = ("unsupported_parameter", "unsupported_value")
"""Codes of OpenAI's errors for a parameter, or a value of it, that a model does not take."""

SESSION_HEADER = "x-session-id"
"""The header by which a router in front of several engines keeps a conversation on one."""


class HttpEngine(UpstreamEngine):
    """One model behind one or more base URLs (without `/v1`).

    With `model` None each upstream is asked for the first model that it lists, since servers of
    different kinds may name the same model differently.
    """

    def __init__(
        self,
        urls: Sequence[str],
        *,
        key: str | None,
        model: str | None,
        timeout: float,
        keep_alive: bool = True,
        slots: int | None = None,
    ) -> None:
        super().__init__(
            urls,
            {"authorization": f"Bearer {key}"} if key else {},
            model=model,
            timeout=timeout,
            keep_alive=keep_alive,
            slots=slots,
        )
        self._urls = " ".join(urls)
        self._refused: dict[str | None, frozenset[str]] = {}

    @property
    def isolates_keys(self) -> bool:
        """True if all upstreams are vLLM, which caches per `cache_salt`."""
        return self._upstream_pool.takes_salt

    async def chat(self, body: Mapping[str, Any], session: str | None) -> Chunks:
        """Stream the chunks of an answer.

        The upstream is always asked for a stream, as only a stream can be cancelled.
        """
        answer = await self._begin(body, session)
        try:
            # Not every upstream streams, whatever it is asked, or says rightly what it sends.
            begun = b""
            while not begun and (piece := await answer.read()):
                begun = piece.lstrip()
            if begun.startswith(b"{"):
                yield _as_chunk(_parse(begun + await answer.read_all()))
                return
            if begun.startswith(b"<"):
                raise EngineUnavailable(
                    "the engine sent a web page instead of an answer; check MODEL_UPSTREAM"
                )
            finished, unwatched = False, body.get("stream") is False
            stream = SseStream(answer, begun)
            while arrived := await stream.next_batch():
                chunks = (_parse(data) for data in arrived if data and data != DONE)
                for chunk in merge_chunks(chunks) if unwatched else chunks:
                    finished = finished or _is_finished(chunk)
                    yield chunk
                if DONE in arrived:
                    answer.finish()
                    return
            # A `finish_reason` without a final [DONE] is accepted as the end.
            if not finished:
                raise EngineUnavailable("the engine's answer broke off")
        finally:
            answer.close()

    async def _begin(self, body: Mapping[str, Any], session: str | None) -> UpstreamResponse:
        """Send a chat; again without the parameters that the model refuses. Raises ApiError."""
        path = "/v1/completions" if "prompt" in body else "/v1/chat/completions"
        headers = {SESSION_HEADER: _pseudonym(session)} if session is not None else {}
        model = body.get("model") or self._model
        whole = {"stream": True, "stream_options": {"include_usage": True}, "model": model}
        while True:
            refused = self._refused.get(model, frozenset())
            asked = _without(refused, body) | whole
            try:
                return await self._upstream_pool.send(
                    UpstreamRequest("POST", path, asked, session, headers, names_model=True)
                )
            except InvalidRequest as error:
                parameter = _refused_parameter(error)
                if parameter is None or parameter not in asked:
                    raise
                self._refused[model] = refused | {parameter}

    async def count(self, body: Mapping[str, Any]) -> TokenCount:
        """Count tokens with vLLM's `/tokenize`, or with llama.cpp's template and tokenizer."""

        async def count_at(upstream: Upstream) -> TokenCount:
            return await self._count(upstream, body)

        return await self._upstream_pool.try_each(count_at, skipped=(*FAILOVER_ERRORS, Unsupported))

    async def _count(self, upstream: Upstream, body: Mapping[str, Any]) -> TokenCount:
        unsalted = {key: value for key, value in body.items() if key != CACHE_SALT}
        asked = {**unsalted, "model": body.get("model") or self._model}
        if upstream.counts_chats:
            answer = await self._json(_post("/tokenize", asked), upstream)
            if isinstance(count := answer.get("count"), int):
                limit = answer.get("max_model_len")
                known = limit if isinstance(limit, int) else None
                return TokenCount(tuple(answer.get("tokens") or ()), count, known)
            # llama.cpp: its `/tokenize` takes only text, and returns tokens without a count.
            upstream.counts_chats = False
        text = body.get("prompt")
        if text is None:
            text = (await self._json(_post("/apply-template", asked), upstream)).get("prompt")
        bare = UpstreamRequest("POST", "/tokenize", {"content": text, "add_special": True})
        tokens = (await self._json(bare, upstream)).get("tokens")
        if not isinstance(tokens, list):
            raise Unsupported("the engine behind this server does not count tokens")
        return TokenCount(tuple(tokens), len(tokens), None)

    @property
    def aborted_posts(self) -> int:
        """The number of requests that failed or were left before the first byte of an answer."""
        return self._upstream_pool.aborted_posts

    async def responds(self, seconds: float) -> bool:
        """Return whether llama.cpp's main loop responds within `seconds`.

        `/slots` is answered by that loop; other paths respond even when it is stuck.
        """
        try:
            async with asyncio.timeout(seconds):
                answer = await self._upstream_pool.send(UpstreamRequest("GET", "/slots"))
                await answer.read_all()
        except (TimeoutError, ApiError):
            return False
        return True

    async def embeddings(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Forward an embeddings request, to the model named in `body` or else the default."""
        asked = {**body, "model": body.get("model") or self._model}
        return await self._json(_post("/v1/embeddings", asked))

    async def model_info(self, model: str | None = None) -> ModelInfo:
        """Read the list of models, then the details that other kinds of servers have."""

        async def describe_model(upstream: Upstream) -> ModelInfo:
            return await self._info(upstream, model or self._model)

        return await self._upstream_pool.try_each(describe_model)

    async def _info(self, upstream: Upstream, model: str | None) -> ModelInfo:
        cards = await self._upstream_pool.cards(upstream)
        name = model or str(cards[0]["id"])
        found = info_from_model_card(next((card for card in cards if card["id"] == name), {}))
        if found.context is None:
            found = coalesce_info(await self._details(upstream, name), found)
        try:
            counted = await self._count(upstream, {"prompt": "hello", "model": name})
        except ApiError:
            counts_tokens = False
        else:
            counts_tokens, found = True, coalesce_info(found, ModelInfo(context=counted.limit))
        return replace(
            found,
            counts_tokens=counts_tokens,
            weights=name,
            parameters=found.parameters or size_in(name),
            identity=f"{name} at {self._urls}",
        )

    async def _details(self, upstream: Upstream, name: str) -> ModelInfo:
        """Ask as one asks llama-server, Ollama and LiteLLM; others answer none of these."""

        async def ask(method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
            return await self._json(UpstreamRequest(method, path, body), upstream)

        with suppress(ApiError):
            return info_from_props(await ask("GET", "/props"))
        with suppress(ApiError):
            shown = await ask("POST", "/api/show", {"model": name})
            running = None
            with suppress(ApiError):
                running = running_model(await ask("GET", "/api/ps"), name)
            return info_from_ollama(shown, running)
        with suppress(ApiError):
            listed = (await ask("GET", "/v1/model/info")).get("data")
            return info_from_litellm(listed if isinstance(listed, list) else (), name)
        return ModelInfo()


def _without(refused: frozenset[str], body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a body without the parameters that a model refuses."""
    kept = {key: value for key, value in body.items() if key not in refused}
    if "max_tokens" in refused and "max_tokens" in body:
        kept["max_completion_tokens"] = body["max_tokens"]
    return kept


def _refused_parameter(error: InvalidRequest) -> str | None:
    """Return the parameter without which a request may be sent again, None if there is none."""
    # OpenAI's reasoning models know only the newer name of the limit.
    if "max_completion_tokens" in error.message:
        return "max_tokens"
    is_fixed = error.code in UNSUPPORTED_CODES and error.param in FIXED_PARAMETERS
    return error.param if is_fixed else None


def _post(path: str, body: Mapping[str, Any]) -> UpstreamRequest:
    return UpstreamRequest("POST", path, body, names_model=True)


def _pseudonym(session: str) -> str:
    """Return a hash of a session's name, which may contain the name of a channel."""
    return hashlib.blake2b(session.encode(), digest_size=16, person=b"session").hexdigest()


def _as_chunk(whole: Chunk) -> Chunk:
    """Convert the whole answer of an upstream that does not stream to a single chunk."""
    for choice in _choices(whole):
        choice["delta"] = delta = choice.pop("message", None) or {}
        for index, call in enumerate(delta.get("tool_calls") or ()):
            # Calls have an index in a stream only.
            call["index"] = index
    return whole


def _parse(data: bytes) -> Chunk:
    chunk = parse_json(data)
    if not isinstance(chunk, dict):
        raise _malformed_error()
    if chunk.get("error"):
        raise event_to_api_error(chunk["error"])
    if "choices" not in chunk and "message" in chunk:
        # An `error:` event of llama.cpp, whose data is the bare error object.
        raise event_to_api_error(chunk)
    for choice in _choices(chunk):
        _require_choice(choice)
    return chunk


def _is_finished(chunk: Chunk) -> bool:
    return any(choice.get("finish_reason") for choice in _choices(chunk))


def _choices(chunk: Chunk) -> list[Chunk]:
    """Return the choices of a chunk. Raises EngineUnavailable if they are malformed."""
    choices = chunk.get("choices") or []
    if not isinstance(choices, list) or not all(isinstance(each, dict) for each in choices):
        raise _malformed_error()
    return choices


def _require_choice(choice: Chunk) -> None:
    """Require the types of the API in a choice; raises EngineUnavailable."""
    delta = choice.get("delta") or choice.get("message") or {}
    if isinstance(delta, dict) and isinstance(content := delta.get("content"), list):
        delta.update(_parts(content))
    if not (
        isinstance(delta, dict)
        and isinstance(choice.get("index"), int | None)
        and isinstance(choice.get("text"), str | None)
        and isinstance(choice.get("logprobs"), dict | None)
        and all(isinstance(delta.get(key), str | None) for key in TEXTS)
        and isinstance(calls := delta.get("tool_calls") or [], list)
        and all(map(_is_call, calls))
    ):
        raise _malformed_error()


def _is_call(call: Any) -> bool:
    """Return whether a piece of a tool call has the types of the API, and a sane index."""
    if not isinstance(call, dict) or not isinstance(function := call.get("function") or {}, dict):
        return False
    texts = (call.get("id"), function.get("name"), function.get("arguments"))
    index = call.get("index") or 0
    return all(isinstance(each, str | None) for each in texts) and (
        isinstance(index, int) and 0 <= index < MAX_CALLS
    )


def _parts(parts: list[Any]) -> dict[str, Any]:
    """Return the text and the thoughts of Mistral's content in parts."""
    listed = [part.get("thinking") for part in parts if isinstance(part, dict)]
    thoughts = "".join(_text(inner) for inner in listed if isinstance(inner, list))
    return {"content": _text(parts), "reasoning_content": thoughts or None}


def _text(parts: list[Any]) -> str:
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "".join(text for text in texts if isinstance(text, str))


def _malformed_error() -> EngineUnavailable:
    return EngineUnavailable("the engine sent something that is not a chunk")
