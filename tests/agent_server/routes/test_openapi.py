"""The API answers what its own description promises, and the SDKs of others; and never a 500."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import httpx2
import pytest
import schemathesis
from anthropic.types import Message, MessageTokensCount
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy
from openai.types.chat import ChatCompletion
from openai.types.responses import Response as OpenAIResponse
from pydantic import BaseModel
from schemathesis import Case, GenerationMode
from schemathesis.core.errors import InvalidSchema
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.kit.agent_server import agent_server
from tests.kit.openai_script import Answer, ScriptedOpenAI
from tests.kit.openapi import unresolved_references
from tests.kit.patience import PATIENCE

pytest_plugins = ("tests.kit.scripted_server",)

CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES = 20  # of each endpoint, right ones and wrong ones, always the same
EMBEDDER = "multilingual-e5-small"
OBJECTS: dict[str, type[BaseModel]] = {
    "/v1/chat/completions": ChatCompletion,
    "/v1/messages": Message,
    "/v1/messages/count_tokens": MessageTokensCount,
    "/v1/responses": OpenAIResponse,
}
SAID = Answer("some words", calls=(("lookup", '{"a": 1}'),), reasoning="hm")
ENGINE_IS_WELL = (500, 502, 503, 504)


def ask_everything(url: str) -> set[str]:
    """Ask every endpoint; returns the addresses."""
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    schema.config.update(base_url=url)
    asked = set()
    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()
        for mode in GenerationMode:
            right = mode is GenerationMode.POSITIVE
            if right or len(operation.query) or operation.body:
                ask(operation.as_strategy(generation_mode=mode), right=right)
        asked.add(operation.path)
    return asked


def ask(cases: SearchStrategy[Case[Any]], *, right: bool) -> None:
    """Send requests, and hold each answer against the description.

    The `right` ones ask for the model that there is.
    """

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(case=cases)
    def send(case: Case[Any]) -> None:
        if right and isinstance(case.body, dict) and isinstance(case.body.get("model"), str):
            case.body["model"] = EMBEDDER if "embeddings" in case.operation.path else "terra"
        answer = case.call_and_validate(checks=CHECKS, timeout=PATIENCE)
        assert answer.status_code not in ENGINE_IS_WELL, answer.text
        is_json = answer.headers["content-type"][0].startswith("application/json")
        if answer.status_code == 200 and is_json and case.operation.path in OBJECTS:
            OBJECTS[case.operation.path].model_validate_json(answer.content)

    # The generator gives up on some wrong bodies of its own making.
    with suppress(*([] if right else [InvalidSchema])):
        send()


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
            asked = await asyncio.to_thread(ask_everything, url)
        assert script.requests
    assert {"/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/embeddings"} < asked
