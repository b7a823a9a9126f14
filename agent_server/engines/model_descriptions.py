"""Parsers of the model descriptions of different kinds of servers.

Sources: the OpenAI list of models as vLLM (`max_model_len`), Groq (`context_window`), OpenRouter
(`context_length`, `top_provider`, `architecture`) and Mistral (`max_context_length`,
`capabilities`) extend it; llama.cpp's `/props`; Ollama's `/api/show` and `/api/ps`; LiteLLM's
`/v1/model/info`; Anthropic's `/v1/models/NAME`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from agent_server.engine_protocol import ModelInfo

# Experts, number and unit, but not within a word or a longer number.
_SIZE = re.compile(r"(?<![\w.])(?:(\d{1,2})x)?(\d{1,4}(?:\.\d{1,3})?) ?([bBmM])(?![A-Za-z0-9])")

_NUM_CTX = re.compile(r"^num_ctx +(\d+)\s*$", re.MULTILINE)

CONTEXT_FIELDS = ("max_model_len", "context_window", "context_length", "max_context_length")

OLLAMA_CONTEXT = 4_096
"""Ollama's window for a model that sets no `num_ctx`, on a server that sets no other."""


def info_from_model_card(card: Mapping[str, Any]) -> ModelInfo:
    """Parse one entry of `/v1/models`."""
    senses = _mapping(card, "architecture").get("input_modalities")
    able, takes = _mapping(card, "capabilities"), card.get("supported_parameters")
    listed = takes if isinstance(takes, list) else None
    # OpenRouter names the window of the model, and that of the provider that it asks first.
    windows = [*map(card.get, CONTEXT_FIELDS), _mapping(card, "top_provider").get("context_length")]
    return ModelInfo(
        context=_smallest(windows),
        tools=_flag(able.get("function_calling")) if listed is None else "tools" in listed,
        vision="image" in senses if isinstance(senses, list) else _flag(able.get("vision")),
        reasoning=None if listed is None else "reasoning" in listed,
        parameters=_count(_mapping(card, "meta").get("n_params")),
    )


def info_from_litellm(answer: Mapping[str, Any], name: str) -> ModelInfo:
    """Parse LiteLLM's `/v1/model/info`; a name may stand for several deployments."""
    named = [each for each in objects_in(answer, "data") if each.get("model_name") == name]
    facts = [_mapping(each, "model_info") for each in named]

    def common(key: str) -> bool | None:
        flags = {_flag(each.get(key)) for each in facts}
        return flags.pop() if len(flags) == 1 else None

    return ModelInfo(
        context=_smallest([each.get("max_input_tokens") for each in facts]),
        tools=common("supports_function_calling"),
        vision=common("supports_vision"),
        reasoning=common("supports_reasoning"),
    )


def info_from_props(props: Mapping[str, Any]) -> ModelInfo:
    """Parse llama.cpp's `/props`."""
    template = _mapping(props, "chat_template_caps")
    return ModelInfo(
        context=_count(_mapping(props, "default_generation_settings").get("n_ctx")),
        tools=_flag(template.get("supports_tool_calls")),
        vision=_flag(_mapping(props, "modalities").get("vision")),
    )


def info_from_ollama(model: Mapping[str, Any], running: Mapping[str, Any] | None) -> ModelInfo:
    """Parse Ollama's `/api/show`, and the entry of `/api/ps` if the model is loaded.

    Only the latter has the window in force. Before, it is taken from the model's parameters, or
    else assumed. A model in Ollama's cloud always has the window of its training.
    """
    details, able = _mapping(model, "model_info"), model.get("capabilities")
    trained = _smallest([n for key, n in details.items() if key.endswith(".context_length")])
    names = ("tools", "vision", "thinking", "embedding")
    tools, vision, reasoning, embeddings = (
        name in able if isinstance(able, list) else None for name in names
    )
    is_remote = bool(model.get("remote_host"))
    parameters = model.get("parameters")  # lines of a name and a value
    named = _NUM_CTX.search(parameters) if isinstance(parameters, str) else None
    wanted = (named and int(named[1])) or (None if is_remote else OLLAMA_CONTEXT)
    return ModelInfo(
        context=_count((running or {}).get("context_length")) or _smallest([trained, wanted]),
        tools=tools,
        vision=vision,
        reasoning=reasoning,
        embeddings=embeddings,
        parameters=size_in(str(_mapping(model, "details").get("parameter_size") or "")),
        is_final=is_remote or running is not None,
    )


def running_model(answer: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """Return the entry of a model in Ollama's `/api/ps`, None if it is not loaded."""
    names, listed = (name, f"{name}:latest"), objects_in(answer, "models")
    return next((each for each in listed if each.get("model") in names), None)


def info_from_anthropic(card: Mapping[str, Any]) -> ModelInfo:
    """Parse Anthropic's `/v1/models/NAME`."""
    image = _mapping(_mapping(card, "capabilities"), "image_input")
    thinking = _mapping(_mapping(card, "capabilities"), "thinking")
    return ModelInfo(
        context=_count(card.get("max_input_tokens")),
        vision=_flag(image.get("supported")),
        reasoning=_flag(thinking.get("supported")),
    )


def size_in(name: str) -> int | None:
    """Return the number of parameters in a model's name: 135M, 0.5b, 8x7B, 30B-A3B.

    All experts count: 8x7B is 56 billion.
    """
    found = _SIZE.search(name)
    if not found:
        return None
    experts, number, unit = found.groups()
    size = float(number) * int(experts or 1) * (1e9 if unit in "bB" else 1e6)
    return round(size) or None


def coalesce_info(first: ModelInfo, second: ModelInfo) -> ModelInfo:
    """Merge two descriptions: what is None in `first` is taken from `second`."""
    known = {each.name: getattr(first, each.name) for each in fields(first)}
    return replace(second, **{name: value for name, value in known.items() if value is not None})


def objects_in(answer: Any, key: str) -> list[dict[str, Any]]:
    """Return the objects of the list at a key; none if an answer has another form."""
    listed = answer.get(key) if isinstance(answer, dict) else None
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def _mapping(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    inner = value.get(key)
    return inner if isinstance(inner, Mapping) else {}


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _smallest(values: Iterable[Any]) -> int | None:
    return min(filter(None, map(_count, values)), default=None)


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None
