"""The API answers what its own description promises, and the SDKs of others; and never a 500."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest
from anthropic.types import Message, MessageTokensCount
from openai.types.chat import ChatCompletion
from openai.types.responses import Response as OpenAIResponse
from pydantic import BaseModel
from schemathesis import Case

from tests.kit.agent_server import agent_server
from tests.kit.openai_script import Answer, ScriptedOpenAI
from tests.kit.openapi import CHECKS, ask_everything, unresolved_references
from tests.kit.patience import PATIENCE

EMBEDDER = "multilingual-e5-small"
OBJECTS: dict[str, type[BaseModel]] = {
    "/v1/chat/completions": ChatCompletion,
    "/v1/messages": Message,
    "/v1/messages/count_tokens": MessageTokensCount,
    "/v1/responses": OpenAIResponse,
}
SAID = Answer("some words", calls=(("lookup", '{"a": 1}'),), reasoning="hm")
ENGINE_IS_WELL = (500, 502, 503, 504)


def send(case: Case[Any], right: bool) -> None:
    """Send a request, and hold the answer against the description.

    A right one asks for the model that there is.
    """
    if right and isinstance(case.body, dict) and isinstance(case.body.get("model"), str):
        case.body["model"] = EMBEDDER if "embeddings" in case.operation.path else "terra"
    answer = case.call_and_validate(checks=CHECKS, timeout=PATIENCE)
    assert answer.status_code not in ENGINE_IS_WELL, answer.text
    is_json = answer.headers.get("content-type", [""])[0].startswith("application/json")
    if answer.status_code == 200 and is_json and case.operation.path in OBJECTS:
        OBJECTS[case.operation.path].model_validate_json(answer.content)


@pytest.mark.process
async def test_every_reference_of_the_description_leads_somewhere(http: httpx2.AsyncClient) -> None:
    assert unresolved_references((await http.get("/openapi.json")).json()) == []


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(600)
async def test_the_api_answers_as_it_says_and_never_with_a_500() -> None:
    async with ScriptedOpenAI() as script:
        script.default = SAID
        async with agent_server({"upstream": script.url}) as url:
            asked = await asyncio.to_thread(ask_everything, url, send)
        assert script.requests
    assert {"/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/embeddings"} < asked
