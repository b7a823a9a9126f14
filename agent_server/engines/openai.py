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
    info_from_model_card,
    info_from_ollama,
    info_from_props,
    size_in,
)
from agent_server.engines.errors import event_to_api_error
from agent_server.engines.upstream_pool import (
    FAILOVER_ERRORS,
    SseStream,
    Upstream,
    UpstreamEngine,
    UpstreamRequest,
    parse_json,
)
from agent_server.errors import ApiError, EngineUnavailable, Unsupported


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

    @property
    def isolates_keys(self) -> bool:
        """True if all upstreams are vLLM, which caches per `cache_salt`."""
        return self._upstream_pool.takes_salt

    async def chat(self, body: Mapping[str, Any], session: str | None) -> Chunks:
        """Stream the chunks of an answer.

        The upstream is always asked for a stream, as only a stream can be cancelled.
        """
        asked = {
            **body,
            "model": body.get("model") or self._model,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        path = "/v1/completions" if "prompt" in body else "/v1/chat/completions"
        headers = {SESSION_HEADER: _pseudonym(session)} if session is not None else {}
        answer = await self._upstream_pool.send(
            UpstreamRequest("POST", path, asked, session, headers, names_model=True)
        )
        try:
            # Some upstreams do not stream, whatever they are asked.
            if answer.headers.get("content-type", "").startswith("application/json"):
                yield _as_chunk(_parse(await answer.read_all()))
                return
            finished, unwatched = False, body.get("stream") is False
            stream = SseStream(answer)
            while arrived := await stream.next_batch():
                chunks = (_parse(data) for data in arrived if data != DONE)
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

    async def count(self, body: Mapping[str, Any]) -> TokenCount:
        """Count tokens with vLLM's `/tokenize`, or with llama.cpp's template and tokenizer."""

        async def counted(upstream: Upstream) -> TokenCount:
            return await self._count(upstream, body)

        return await self._upstream_pool.try_each(counted, skipped=(*FAILOVER_ERRORS, Unsupported))

    async def _count(self, upstream: Upstream, body: Mapping[str, Any]) -> TokenCount:
        unsalted = {key: value for key, value in body.items() if key != CACHE_SALT}
        asked = {**unsalted, "model": body.get("model") or self._model}
        if upstream.counts_chats:
            answer = await self._json(_post("/tokenize", asked), upstream)
            if "count" in answer:
                limit = answer.get("max_model_len")
                return TokenCount(tuple(answer.get("tokens") or ()), answer["count"], limit)
            # llama.cpp: its `/tokenize` takes only text, and returns tokens without a count.
            upstream.counts_chats = False
        text = body.get("prompt")
        if text is None:
            text = (await self._json(_post("/apply-template", asked), upstream))["prompt"]
        bare = UpstreamRequest("POST", "/tokenize", {"content": text, "add_special": True})
        tokens = (await self._json(bare, upstream))["tokens"]
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

    async def model_info(self) -> ModelInfo:
        """Read the list of models, then the details that llama.cpp or Ollama have."""
        return await self._upstream_pool.try_each(self._info)

    async def _info(self, upstream: Upstream) -> ModelInfo:
        cards = await self._upstream_pool.cards(upstream)
        name = self._model or str(cards[0]["id"])
        said = info_from_model_card(next((card for card in cards if card["id"] == name), {}))
        found = replace(
            said,
            weights=name,
            parameters=said.parameters or size_in(name),
            identity=f"{name} at {self._urls}",
        )
        # Most upstreams have neither of these two.
        with suppress(ApiError):
            props = await self._json(UpstreamRequest("GET", "/props"), upstream)
            return coalesce_info(info_from_props(props), found)
        with suppress(ApiError):
            shown = await self._json(
                UpstreamRequest("POST", "/api/show", {"model": name}), upstream
            )
            return coalesce_info(info_from_ollama(shown), found)
        return found


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
        raise EngineUnavailable("the engine sent something that is not a chunk")
    if chunk.get("error"):
        raise event_to_api_error(chunk["error"])
    if "choices" not in chunk and "message" in chunk:
        # An `error:` event of llama.cpp, whose data is the bare error object.
        raise event_to_api_error(chunk)
    return chunk


def _is_finished(chunk: Chunk) -> bool:
    return any(choice.get("finish_reason") for choice in _choices(chunk))


def _choices(chunk: Chunk) -> list[Chunk]:
    """Return the choices of a chunk. Raises EngineUnavailable if they are malformed."""
    choices = chunk.get("choices") or []
    if not isinstance(choices, list) or not all(isinstance(each, dict) for each in choices):
        raise EngineUnavailable("the engine sent something that is not a chunk")
    return choices
