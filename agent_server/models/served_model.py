"""A model under the name that clients ask for, with its engine and capabilities."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any

import structlog

from agent_server.admission.admitted_engine import BYTES_PER_TOKEN, AdmittedEngine
from agent_server.engine_protocol import Chunks, ModelInfo, TokenCount
from agent_server.engines.model_descriptions import size_in
from agent_server.errors import (
    ApiError,
    ContextLengthExceeded,
    EngineMisconfigured,
    EngineUnavailable,
    ToolsRefused,
    Unsupported,
)
from agent_server.metering.request_context import OURSELVES, RequestContext
from agent_server.model_catalogue.catalogue import better_than
from agent_server.models.capabilities import (
    PASSING_SHARE,
    VERSION,
    MeasurementStore,
    ModelCapabilities,
    ModelMeasurements,
    PromptSpeed,
    is_near,
    share_right,
)
from agent_server.schemas.chat import ChatRequest, PromptFields, TokenizePrompt
from agent_server.schemas.chat_answer import ChunkNormalizer
from agent_server.schemas.texts import CompletionRequest, as_chat_choice
from agent_server.settings.models import ModelConfig
from agent_server.tool_calling.emulation import TOOL_KEYS, answer_with_tools, render_tools
from storage.usage.usage import TokenUsage

log = structlog.get_logger()

PROMPT_FIELDS = {"messages", "tools", "tool_choice", "parallel_tool_calls"}
FORWARDED_FIELDS = PROMPT_FIELDS | {
    "frequency_penalty", "logit_bias", "logprobs", "min_p", "n", "presence_penalty",
    "reasoning_effort", "response_format", "seed", "stop", "temperature", "top_k",
    "top_logprobs", "top_p", "verbosity",
}  # fmt: skip

_DATA_URL = re.compile(r'"data:[^"]*"')

FIRST_INFO_PAUSE, MAX_INFO_PAUSE = 0.1, 2.0
"""Seconds before an engine that could not describe its model is asked again: the first pause, as it
may still be loading, and the longest."""

MEASURE_ATTEMPTS = 3
"""Number of attempts for a test or measurement that fails with an error of the engine."""

SAMPLE_WORDS = ("hello", "paper", "green")
"""Words, each repeated to a trial prompt, to measure a prompt speed that is not known yet."""

SAMPLE_PAUSE = 3.0
"""Seconds between trial prompts: the machine is slow during startup, and the fastest counts."""

EMBEDDED_MAX_TOKENS = 1024
"""Default limit of an answer of the embedded engine, in tokens: llama.cpp has none."""

REFRESH_TIMEOUT = 5.0
"""Seconds within which an engine must describe a model whose card somebody waits for."""

SLOWEST_SPEED = 1.0
"""Tokens per second that an upstream is trusted to generate."""

MAX_VARIANTS = 64
"""Number of models of one upstream that are remembered; clients choose their names."""


class ServedModel:
    """Answers requests, with tool calls and reasoning in the API's form.

    `upstream_model` selects one model of an upstream that has several. `is_learned` is whether the
    engine has described the model; one of several counts as described by its name. `trouble` is
    why the engine cannot, "" unless only its owner can fix that.
    """

    def __init__(
        self,
        name: str,
        engine: AdmittedEngine,
        settings: ModelConfig,
        upstream_model: str | None = None,
        store: MeasurementStore | None = None,
    ) -> None:
        self.name = name
        self.engine = engine
        self.settings = settings
        self._is_embedded = not settings.urls
        self._temperature = settings.default_temperature
        self._store = store
        self._measured = ModelMeasurements()
        self._variants: dict[str, ServedModel] = {}
        # What the engine has refused is certain: a longer prompt than this many tokens, and tools.
        self._refused_context: int | None = None
        self._refuses_tools = False
        self.info = ModelInfo(
            parameters=size_in(upstream_model or ""), weights=upstream_model, is_final=False
        )
        self.is_learned = upstream_model is not None
        self.trouble = ""
        self.capabilities = self._capabilities()
        self.better: str | None = None
        self._speed = PromptSpeed()
        self._model_field: dict[str, Any] = {"model": upstream_model} if upstream_model else {}

    def for_upstream_model(self, upstream_model: str) -> ServedModel:
        """Return the served model for another model at the same upstream."""
        if upstream_model not in self._variants:
            if len(self._variants) >= MAX_VARIANTS:
                del self._variants[next(iter(self._variants))]
            self._variants[upstream_model] = ServedModel(
                f"{self.name}:{upstream_model}", self.engine, self.settings, upstream_model
            )
        return self._variants[upstream_model]

    async def detect_capabilities(self) -> None:
        """Ask the engine for the model's capabilities until it answers, then measure the rest."""
        pause = FIRST_INFO_PAUSE
        while True:
            try:
                self.info = await self.engine.model_info()
            except ApiError as error:
                self.trouble = error.message if isinstance(error, EngineMisconfigured) else ""
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_INFO_PAUSE)
            else:
                self.trouble = ""
                break
        if self._store and self.info.identity:
            self._measured = self._store.read(self._key())
            self._speed.seed(self._measured.prompt_tokens_per_second or 0)
        self._update_capabilities()
        log.info("model.learned", model=self.name, **self.capabilities.as_wire())
        await self._measure()

    async def refresh(self) -> None:
        """Ask for a description that is missing, or was made before the model was loaded."""
        if self.info.is_final or not self.is_learned:
            return
        with suppress(ApiError, TimeoutError):
            async with asyncio.timeout(REFRESH_TIMEOUT):
                self.info = await self.engine.model_info(self._model_field.get("model"))
            self.capabilities = self._capabilities()

    @property
    def prompt_tokens_per_second(self) -> float | None:
        """The measured speed at which this machine's CPU reads uncached prompts.

        None before the first measurement, and for models that run elsewhere.
        """
        return self._speed.rate if self._is_on_cpu else None

    @property
    def _is_on_cpu(self) -> bool:
        return self._is_embedded and not self.info.gpus

    def save_measurements(self) -> None:
        """Store the measurements for the next start."""
        rate = self.prompt_tokens_per_second
        found = self._measured.model_copy(
            update={
                "model": self.info.weights or "",
                "prompt_tokens_per_second": round(rate, 1) if rate else None,
            }
        )
        if self._store and self.info.identity and found != self._measured:
            self._measured = found
            self._store.write(self._key(), found)

    def _key(self) -> str:
        # A result holds for these questions, this kind of tool calls and these weights only.
        return f"{VERSION} {self.capabilities.tools} {self.info.identity}"

    def _update_capabilities(self) -> None:
        """Recompute the capabilities, after the engine's description or a test."""
        self.is_learned = True
        self.capabilities = self._capabilities()
        if self._is_embedded:
            self.better = better_than(self.info.parameters, self.info.gpus or ())

    def _capabilities(self) -> ModelCapabilities:
        """Compute the capabilities; `chooses_tools` is None until the engine describes itself."""
        info, window = self.info, self._refused_context
        if window or self._refuses_tools:
            tools = False if self._refuses_tools else info.tools
            info = replace(info, context=window or info.context, tools=tools)
        able = ModelCapabilities.from_settings(self.settings, info, self._measured.chooses_tools)
        if window:  # even where a larger one is configured
            able = replace(able, context=min(able.context, window))
        said = self.settings.chooses_tools is not None or able.tools == "forced"
        return able if self.is_learned or said else replace(able, chooses_tools=None)

    async def _measure(self) -> None:
        """Test the tool choice or measure the prompt speed, whichever is not known yet."""
        context = RequestContext(key=OURSELVES, background=True)
        params = self._engine_params(context)
        for _ in range(MEASURE_ATTEMPTS):
            try:
                if self.capabilities.chooses_tools is None:
                    share = await share_right(lambda body: self._chat({**params, **body}, context))
                    passed = share >= PASSING_SHARE
                    self._measured = self._measured.model_copy(
                        update={"chooses_tools": passed, "share_right": share}
                    )
                    self._update_capabilities()
                    if self._store and self.info.identity:
                        self._store.write(self._key(), self._measured)
                    log.info("model.judged", model=self.name, right=share, chooses_tools=passed)
                elif self._is_on_cpu and self._speed.rate is None:
                    # A new word each time: a repeated prompt would come from the engine's cache.
                    for word in SAMPLE_WORDS:
                        messages = [{"role": "user", "content": f"{word} " * 200}]
                        body = {**params, "messages": messages, "max_tokens": 1}
                        probe = PromptSpeed()
                        async with aclosing(self.engine.chat(body, context)) as chunks:
                            async for chunk in chunks:
                                probe.observe(chunk)
                        self._speed.seed(probe.rate or 0)
                        self.save_measurements()
                        await asyncio.sleep(SAMPLE_PAUSE)
            except ApiError as error:
                log.warning("model.not_measured", model=self.name, reason=error.message)
                await asyncio.sleep(MAX_INFO_PAUSE)
            else:
                break
        self.save_measurements()

    def answer(self, request: ChatRequest, context: RequestContext) -> Chunks:
        """Stream the answer; the last chunk has the usage. Raises ApiError."""
        self._require_modalities(request, context)
        if self._is_embedded:
            request.require_no_controls()
            request.require_followed_schema()
        body = {
            **self._engine_params(context),
            **self._settle_tool_choice(_request_body(request, FORWARDED_FIELDS)),
        }
        asked = request.max_completion_tokens or request.max_tokens or self.settings.max_tokens
        if limit := asked or (EMBEDDED_MAX_TOKENS if self._is_embedded else None):
            body["max_tokens"] = limit
        return self._chat(body, context, is_whole=not request.stream)

    def _chat(
        self, body: Mapping[str, Any], context: RequestContext, *, is_whole: bool = False
    ) -> Chunks:
        """Stream the answer to a chat, with the tools of the engine or else with ours.

        With `is_whole` the client gets the answer as a whole. An upstream is asked for it in one
        piece then, unless it may be so long that the upstream would be silent for too long. The
        queue of the embedded engine needs to know when the first token has been generated.
        """
        if self.capabilities.tools != "native":
            return answer_with_tools(lambda part: self._ask(part, context), body)
        is_short = body.get("max_tokens", math.inf) <= self.settings.timeout * SLOWEST_SPEED
        if is_whole and is_short and not self._is_embedded:
            body = {**body, "stream": False}
        return self._try_tools(body, context) if "tools" in body else self._ask(body, context)

    async def _try_tools(self, body: Mapping[str, Any], context: RequestContext) -> Chunks:
        """Stream an answer with the tools of the engine; if it refuses them, with ours."""
        has_begun = False
        try:
            async with aclosing(self._ask(body, context)) as chunks:
                async for chunk in chunks:
                    has_begun = True
                    yield chunk
            return
        except ToolsRefused as error:
            if has_begun:
                raise
            log.warning("model.refuses_tools", model=self.name, reason=error.message)
        self._refuses_tools = True
        self.capabilities = self._capabilities()
        streamed = {key: value for key, value in body.items() if key != "stream"}
        async with aclosing(self._chat(streamed, context)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def complete(self, request: CompletionRequest, context: RequestContext) -> Chunks:
        """Stream the continuations of bare texts, one after another, as chat chunks; the last one
        has the usage of all. Raises ApiError."""
        params, total, each = self._engine_params(context), TokenUsage(), request.n or 1
        for index, body in enumerate(request.bodies()):
            async with aclosing(self._ask({**params, **body}, context)) as chunks:
                async for chunk in chunks:
                    if chunk.get("usage"):
                        total += TokenUsage.from_wire(chunk["usage"])
                    else:
                        made = [as_chat_choice(one, index * each) for one in chunk["choices"]]
                        yield {"choices": made}
        yield {"choices": [], "usage": total.as_wire()}

    async def _ask(self, body: Mapping[str, Any], context: RequestContext) -> Chunks:
        """Stream an answer of the engine as normalised chunks, and learn from it."""
        # An engine with native tool calls means what it writes, and so does one that writes JSON.
        anywhere = self.capabilities.tools != "native" and "response_format" not in body
        normalizer = ChunkNormalizer(thoughts="messages" in body, anywhere=anywhere)
        # Some engines ignore what they do not have.
        missing = set(range(body.get("n") or 1))
        is_empty, has_logprobs = True, not body.get("logprobs")
        try:
            async with aclosing(self.engine.chat(body, context)) as chunks:
                async for chunk in chunks:
                    if self._is_on_cpu:
                        self._speed.observe(chunk)
                    if chunk.get("choices"):
                        is_empty, made = False, normalizer.feed(chunk)
                        missing.difference_update(each["index"] for each in made["choices"])
                        has_logprobs |= any("logprobs" in each for each in made["choices"])
                        yield made
                    elif "usage" in chunk and not is_empty:
                        yield chunk
        except ContextLengthExceeded as error:
            if error.limit and error.limit != self.capabilities.context:
                self._refused_context = error.limit
                self.capabilities = self._capabilities()
                log.warning("model.window_corrected", model=self.name, window=error.limit)
            raise
        if is_empty:
            raise EngineUnavailable("the engine gave an empty answer")
        if missing:
            raise Unsupported("the engine behind this server ignores n: ask it several times")
        if not has_logprobs:
            raise Unsupported("the engine behind this server gives no logprobs")

    async def embeddings(self, body: Mapping[str, Any], context: RequestContext) -> dict[str, Any]:
        """Embed texts with this model. Raises ApiError."""
        asked = {
            **self._model_field,
            **{key: value for key, value in body.items() if key != "model"},
        }
        return {**await self.engine.embeddings(asked, context), "model": self.name}

    async def count(
        self, request: PromptFields | TokenizePrompt, context: RequestContext
    ) -> TokenCount:
        """Count the tokens of a text, or those that a chat request would send to the engine; if it
        cannot count, estimate those of the words."""
        body: dict[str, Any]
        if isinstance(request, TokenizePrompt):
            body = {"prompt": request.prompt}
        else:
            self._require_modalities(request, context)
            body = self._settle_tool_choice(_request_body(request, PROMPT_FIELDS))
            if self.capabilities.tools != "native":
                body = render_tools(body)
        try:
            counted = await self.engine.count({**self._model_field, **body}, context)
        except Unsupported:
            words = _DATA_URL.sub('""', json.dumps(body, ensure_ascii=False)).encode()
            counted = TokenCount((), -(-len(words) // BYTES_PER_TOKEN), None, is_estimate=True)
        # What is configured, or was refused, is more certain than what the tokenizer says.
        is_certain = self.settings.context or self._refused_context
        limit = self.capabilities.context if is_certain else counted.limit
        return replace(counted, limit=limit or self.capabilities.context)

    def _require_modalities(self, request: PromptFields, context: RequestContext) -> None:
        if not self.capabilities.vision:
            request.require_words_only()
        if not context.sees_all and any(map(is_near, self.settings.urls)):
            request.require_no_addresses()

    def _engine_params(self, context: RequestContext) -> dict[str, Any]:
        """Return the engine's parameters besides the request. vLLM runs low priorities first."""
        params = dict(self._model_field)
        if self._temperature is not None:
            params["temperature"] = self._temperature
        if self.settings.priority:
            params["priority"] = int(context.background)
        return params

    def _settle_tool_choice(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the body as it is, without tools if a model too small to choose has a tool's
        result to answer with. Raises ToolsRefused if such a model would have to choose."""
        is_free = bool(body.get("tools")) and body.get("tool_choice", "auto") == "auto"
        if not is_free or self.capabilities.tools != "forced":
            return body
        for message in reversed(body["messages"]):
            if message["role"] == "tool":
                return {key: value for key, value in body.items() if key not in TOOL_KEYS}
            if message["role"] == "assistant":
                break
        raise ToolsRefused(
            f"the model {self.name} is too small to choose when to call a tool: set tool_choice to "
            '"required" or to one function, leave out tools, or ask a larger model',
            param="tool_choice",
        )


def _request_body(request: PromptFields, fields: set[str]) -> dict[str, Any]:
    """Return the request as JSON: the fields that the client set, null content included."""
    dumped = request.model_dump(include=fields, exclude_unset=True, by_alias=True)
    body = {key: value for key, value in dumped.items() if value is not None}
    for message in body["messages"]:
        if message["role"] == "developer":
            # Chat templates of open models know only the older name of the role.
            message["role"] = "system"
        if message.get("tool_calls") in (None, []):
            message.pop("tool_calls", None)
    return body
