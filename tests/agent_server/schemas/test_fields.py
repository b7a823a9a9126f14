"""Every documented field of every request, against the official SDKs: none is dropped silently.

`WORKS` gives a value that must be accepted, `HINT` one that is accepted and changes nothing here,
`REFUSED` one that must be answered with an error that names the field. The tables have exactly
the fields that the SDKs' own types have: a new SDK with a new field fails until it is decided.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, get_type_hints

import httpx2
import pytest
import pytest_asyncio
from anthropic.types.message_count_tokens_params import MessageCountTokensParams
from anthropic.types.message_create_params import (
    MessageCreateParamsNonStreaming,
    MessageCreateParamsStreaming,
)
from openai.types import completion_create_params as completion
from openai.types.chat import completion_create_params as chat
from openai.types.embedding_create_params import EmbeddingCreateParams
from openai.types.responses import response_create_params as response

from tests.kit.agent_server import agent_client
from tests.kit.openai_script import ScriptedOpenAI

pytest_plugins = ("tests.kit.embedder",)

pytestmark = pytest.mark.process  # the embedding model is a child of the server

USER = {"role": "user", "content": "hi"}
CHAT_TOOL = {"type": "function", "function": {"name": "lookup", "parameters": {"type": "object"}}}
TOOL = {"type": "function", "name": "lookup", "parameters": {"type": "object"}}
ANTHROPIC_TOOL = {"name": "lookup", "input_schema": {"type": "object"}}
PLAIN: dict[str, Any] = {"type": "text"}

WORKS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "frequency_penalty": 0.5, "logit_bias": {"5": -1}, "logprobs": True,
        "max_completion_tokens": 5, "max_tokens": 5, "messages": [USER], "modalities": ["text"],
        "model": "terra", "n": 2, "parallel_tool_calls": False, "presence_penalty": 0.5,
        "prompt_cache_key": "k", "reasoning_effort": "low", "response_format": PLAIN, "seed": 1,
        "service_tier": "auto", "stop": ["x"], "stream": True,
        "stream_options": {"include_usage": True}, "temperature": 0.5, "tool_choice": "auto",
        "tools": [CHAT_TOOL], "top_logprobs": 2, "top_p": 0.5, "verbosity": "low",
    },
    "/v1/completions": {
        "best_of": 1, "echo": True, "frequency_penalty": 0.5, "logit_bias": {"5": -1},
        "logprobs": 1, "max_tokens": 5, "model": "terra", "n": 1, "presence_penalty": 0.5,
        "prompt": "hi", "seed": 1, "stop": "x", "stream": True,
        "stream_options": {"include_usage": True}, "temperature": 0.5, "top_p": 0.5,
    },
    "/v1/responses": {
        "include": ["message.output_text.logprobs"], "input": "hi", "instructions": "Be brief.",
        "max_output_tokens": 5, "metadata": {"a": "b"}, "model": "terra",
        "parallel_tool_calls": False, "previous_response_id": None, "prompt_cache_key": "k",
        "reasoning": {"effort": "low"}, "service_tier": "auto", "store": False, "stream": True,
        "stream_options": {"include_obfuscation": False}, "temperature": 0.5,
        "text": {"format": PLAIN}, "tool_choice": "auto", "tools": [TOOL], "top_logprobs": 2,
        "top_p": 0.5, "truncation": "disabled",
    },
    "/v1/embeddings": {
        "dimensions": 384, "encoding_format": "base64", "input": "hi",
        "model": "multilingual-e5-small",
    },
    "/v1/messages": {
        "max_tokens": 5, "messages": [USER], "model": "terra",
        "output_config": {"effort": "low"}, "service_tier": "auto", "speed": "standard",
        "stop_sequences": ["x"], "stream": True, "system": "Be brief.",
        "thinking": {"type": "adaptive"}, "tool_choice": {"type": "auto"},
        "tools": [ANTHROPIC_TOOL],
    },
    "/v1/messages/count_tokens": {
        "messages": [USER], "model": "terra", "output_config": {"effort": "low"},
        "speed": "standard", "system": "Be brief.", "thinking": {"type": "disabled"},
        "tool_choice": {"type": "auto"}, "tools": [ANTHROPIC_TOOL],
    },
}  # fmt: skip

HINT: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "metadata": {"a": "b"}, "prompt_cache_options": {"mode": "implicit"},
        "prompt_cache_retention": "24h", "safety_identifier": "u", "user": "u",
    },
    "/v1/completions": {"user": "u"},
    "/v1/responses": {
        "max_tool_calls": 3, "prompt_cache_options": {"mode": "implicit"},
        "prompt_cache_retention": "24h", "safety_identifier": "u", "user": "u",
    },
    "/v1/embeddings": {"user": "u"},
    "/v1/messages": {"cache_control": {"type": "ephemeral"}, "metadata": {"user_id": "u"}},
    "/v1/messages/count_tokens": {"cache_control": {"type": "ephemeral"}},
}  # fmt: skip

REFUSED: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "audio": {"voice": "alloy", "format": "wav"}, "function_call": "auto",
        "functions": [{"name": "lookup"}], "moderation": {"model": "x"},
        "prediction": {"type": "content", "content": "hi"}, "store": True,
        "web_search_options": {},
    },
    "/v1/completions": {"suffix": "end"},
    "/v1/responses": {
        "access_programs": {"cyber": "standard"}, "background": True,
        "background_options": {"completion_window": "2h"}, "context_management": [],
        "conversation": "conv_1", "image": {"context_compression": "enabled"},
        "moderation": {"model": "x"}, "prompt": {"id": "pmpt_1"},
    },
    "/v1/embeddings": {},
    "/v1/messages": {
        "container": "c", "diagnostics": {}, "inference_geo": "eu", "user_profile_id": "u",
        "workspace_id": "w",
    },
    "/v1/messages/count_tokens": {"user_profile_id": "u", "workspace_id": "w"},
}  # fmt: skip

WRONG_VALUES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "modalities": ["audio"], "service_tier": "flex", "response_format": {"type": "grammar"},
        "tools": [{"type": "custom", "custom": {"name": "x"}}],
        "tool_choice": {"type": "allowed_tools"}, "stream_options": {"include_obfuscation": True},
    },
    "/v1/completions": {"best_of": 2, "logprobs": 6},
    "/v1/responses": {
        "include": ["reasoning.encrypted_content"], "truncation": "auto",
        "tools": [{"type": "web_search"}], "tool_choice": {"type": "file_search"},
        "service_tier": "priority", "reasoning": {"summary": "auto"},
    },
    "/v1/embeddings": {"dimensions": 128},
    "/v1/messages": {
        "thinking": {"type": "between_tools"}, "speed": "fast", "service_tier": "priority",
        "tools": [{"type": "bash_20250124", "name": "bash"}],
    },
}  # fmt: skip
"""Values that cannot be honoured, of fields that work with others."""

DOCUMENTED: dict[str, set[str]] = {
    "/v1/chat/completions": {
        *get_type_hints(chat.CompletionCreateParamsNonStreaming),
        *get_type_hints(chat.CompletionCreateParamsStreaming),
    },
    "/v1/completions": {
        *get_type_hints(completion.CompletionCreateParamsNonStreaming),
        *get_type_hints(completion.CompletionCreateParamsStreaming),
    },
    "/v1/responses": {
        *get_type_hints(response.ResponseCreateParamsNonStreaming),
        *get_type_hints(response.ResponseCreateParamsStreaming),
    },
    "/v1/embeddings": {*get_type_hints(EmbeddingCreateParams)},
    "/v1/messages": {
        *get_type_hints(MessageCreateParamsNonStreaming),
        *get_type_hints(MessageCreateParamsStreaming),
    },
    "/v1/messages/count_tokens": {*get_type_hints(MessageCountTokensParams)},
}

LEAST: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [USER]},
    "/v1/completions": {"prompt": "hi"},
    "/v1/responses": {"input": "hi"},
    "/v1/embeddings": {"model": "multilingual-e5-small", "input": "hi"},
    "/v1/messages": {"model": "terra", "max_tokens": 5, "messages": [USER]},
    "/v1/messages/count_tokens": {"model": "terra", "messages": [USER]},
}

WRONG: dict[str, list[tuple[dict[str, Any], str | None]]] = {
    "/v1/completions": [
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt[1]"),
        ({"prompt": ["x"] * 65}, "prompt"),
        ({"n": 2, "best_of": 1}, "best_of"),
        ({"prompt": [1], "echo": True}, "echo"),
        ({"echo": True, "logprobs": 1}, "echo"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"messages": []}, "messages"),
    ],
    "/v1/responses": [
        ({"input": []}, "input"),
        ({"input": None}, "input"),
        ({"input": [[]]}, "input[0]"),
        ({"input": [{"role": "wizard", "content": "x"}]}, "input[0].role"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "x"}]}]},
         "input[0].content[0]"),
        ({"tools": [TOOL, TOOL]}, None),
        ({"tool_choice": "required"}, None),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format"),
        ({"max_tokens": 5}, "max_tokens"),
    ],
    "/v1/embeddings": [
        ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", ""]}, "input[1]"),
        ({"input": ["x"] * 2049}, "input"),
        ({"input": [1, 2]}, "input"),
        ({"input_type": "riddle"}, "input_type"),
        ({"encoding_format": "int8"}, "encoding_format"),
        ({"inputs": "y"}, "inputs"),
        ({"input": ["x", "word " * 3000]}, "input[1]"),
    ],
    "/v1/messages": [  # whose errors name the field in their message
        ({"max_tokens": None}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "document", "source": {}}]}]},
         "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "x", "content": [{"type": "image"}]}]}]},
         "messages[0].content[0]"),
        ({"tools": [ANTHROPIC_TOOL, ANTHROPIC_TOOL]}, "same name"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tools": [ANTHROPIC_TOOL], "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice"),
        ({"temperature": 1.5}, "temperature"),
        ({"stop_sequences": ["a", "b", "c", "d", "e"]}, "stop_sequences"),
        ({"max_token": 5}, "max_token"),
    ],
}  # fmt: skip
"""Bodies that cannot be meant, and the fields that their errors name."""

TOGETHER: dict[str, dict[str, Any]] = {
    "stream_options": {"stream": True},
    "top_logprobs": {"logprobs": True},
}
"""Fields that make sense only with another, at the chat and completions endpoints."""


def rows(table: dict[str, dict[str, Any]]) -> list[Any]:
    return [
        pytest.param(path, field, value, id=f"{path} {field}")
        for path, fields in table.items()
        for field, value in fields.items()
    ]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def http(embedder: Path) -> AsyncIterator[httpx2.AsyncClient]:
    async with (
        ScriptedOpenAI() as script,
        agent_client({"upstream": script.url, "cache_dir": str(embedder)}) as client,
    ):
        yield client


@pytest.mark.parametrize("path", DOCUMENTED)
def test_every_documented_field_is_decided(path: str) -> None:
    tables = [WORKS[path], HINT[path], REFUSED[path]]
    assert {field for table in tables for field in table} == DOCUMENTED[path]
    assert sum(len(table) for table in tables) == len(DOCUMENTED[path])


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("path", "field", "value"), [*rows(WORKS), *rows(HINT)])
async def test_a_field_that_works_is_accepted(
    http: httpx2.AsyncClient, path: str, field: str, value: Any
) -> None:
    others = TOGETHER.get(field, {}) if path != "/v1/responses" else {}
    answer = await http.post(path, json={**LEAST[path], **others, field: value})
    assert answer.status_code == 200, answer.text


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("path", "field", "value"), [*rows(REFUSED), *rows(WRONG_VALUES)])
async def test_a_field_that_cannot_work_is_refused_by_its_name(
    http: httpx2.AsyncClient, path: str, field: str, value: Any
) -> None:
    others = TOGETHER.get(field, {}) if path != "/v1/responses" else {}
    answer = await http.post(path, json={**LEAST[path], **others, field: value})
    assert answer.status_code == 400
    assert field in answer.json()["error"]["message"]
    unset = await http.post(path, json={**LEAST[path], field: None})
    assert unset.status_code == 200


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("path", WRONG)
async def test_a_body_that_cannot_be_meant_is_refused_by_the_name_of_its_field(
    http: httpx2.AsyncClient, path: str
) -> None:
    for body, field in WRONG[path]:
        answer = await http.post(path, json={**LEAST[path], **body})
        error = answer.json()["error"]
        assert (answer.status_code, error["type"]) == (400, "invalid_request_error"), body
        if path == "/v1/messages":
            assert answer.json()["type"] == "error"
            assert str(field) in error["message"]
        else:
            assert error["param"] == field, body
