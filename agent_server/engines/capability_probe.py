"""Parsers of the model descriptions of different kinds of servers.

Sources: the OpenAI list of models as vLLM (`max_model_len`), Groq (`context_window`) and OpenRouter
(`context_length`, `architecture`) extend it; llama.cpp's `/props`; Ollama's `/api/show`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from agent_server.engine_protocol import ModelInfo

# Experts, number and unit, but not within a word or a longer number.
_SIZE = re.compile(r"(?<![\w.])(?:(\d{1,2})x)?(\d{1,4}(?:\.\d{1,3})?) ?([bBmM])(?![A-Za-z0-9])")

CONTEXT_FIELDS = ("max_model_len", "context_window", "context_length")


def info_from_model_card(card: Mapping[str, Any]) -> ModelInfo:
    """Parse one entry of `/v1/models`."""
    senses = _mapping(card, "architecture").get("input_modalities")
    parameters = card.get("supported_parameters")
    return ModelInfo(
        context=next((n for key in CONTEXT_FIELDS if (n := _count(card.get(key)))), None),
        tools="tools" in parameters if isinstance(parameters, list) else None,
        vision="image" in senses if isinstance(senses, list) else None,
        reasoning="reasoning" in parameters if isinstance(parameters, list) else None,
        parameters=_count(_mapping(card, "meta").get("n_params")),
    )


def info_from_props(props: Mapping[str, Any]) -> ModelInfo:
    """Parse llama.cpp's `/props`."""
    template = _mapping(props, "chat_template_caps")
    return ModelInfo(
        context=_count(_mapping(props, "default_generation_settings").get("n_ctx")),
        tools=_flag(template.get("supports_tool_calls")),
        vision=_flag(_mapping(props, "modalities").get("vision")),
    )


def info_from_ollama(model: Mapping[str, Any]) -> ModelInfo:
    """Parse Ollama's `/api/show`.

    Its context length is left out: it is that of the training, not the one in use.
    """
    able = model.get("capabilities")
    size = size_in(str(_mapping(model, "details").get("parameter_size") or ""))
    if not isinstance(able, list):
        return ModelInfo(parameters=size)
    names = ("tools", "vision", "thinking", "embedding")
    tools, vision, reasoning, embeddings = (name in able for name in names)
    return ModelInfo(None, tools, vision, reasoning, embeddings, parameters=size)


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
    return ModelInfo(
        *(
            getattr(second, each.name) if value is None else value
            for each in fields(ModelInfo)
            for value in (getattr(first, each.name),)
        )
    )


def _mapping(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    inner = value.get(key)
    return inner if isinstance(inner, Mapping) else {}


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None
