"""Names of models: what the server has is asked for, what it has not is replaced."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from llm.client.client import AgentClient, ModelCatalog, RequestOptions
from llm.client.settings import AgentSettings
from llm.messages.message import Message
from tests.kit.openai_script import ScriptedOpenAI

ASKED: list[Message] = [{"role": "user", "content": "hello there"}]


@asynccontextmanager
async def models(url: str, model: str = "terra") -> AsyncIterator[ModelCatalog]:
    """The names of the server at `url`, where `model` is the configured one."""
    async with AgentClient.open(AgentSettings(api_url=url, model=model)) as client:
        yield ModelCatalog(client)


async def test_fast_and_smart_are_asked_for_where_the_server_has_them() -> None:
    async with ScriptedOpenAI() as script:
        async with models(script.url) as found:
            assert (await found.fast(), await found.smart()) == ("", "")
        script.models |= {"fast", "smart"}
        async with models(script.url) as found:
            assert (await found.fast(), await found.smart()) == ("fast", "smart")
        async with models(script.url, "smart") as found:
            assert await found.smart() == ""
        script.roots = {"smart": "terra"}  # the usual model by another name
        async with models(script.url) as found:
            assert await found.smart() == ""


async def test_an_unknown_name_is_replaced_and_the_log_says_so_once() -> None:
    async with ScriptedOpenAI() as script, models(script.url) as found:
        script.models.add("big")
        with capture_logs() as log:
            assert [await found.resolve(name) for name in ("big", "bug", "bug", "terra", "")] == [
                *("big", "", "", "", "")
            ]
        assert [(each["event"], each["model"]) for each in log] == [("models.unknown", "bug")]
        assert script.asked_models == ["big", "bug"]


async def test_while_the_server_is_away_a_chosen_name_stays() -> None:
    async with models("http://127.0.0.1:9") as found:
        assert await found.resolve("big") == "big"
        assert await found.smart() == ""
        assert await found.chooses_tools() is None
        assert await found.card() is None


@pytest.mark.parametrize("said", [None, True, False])
async def test_a_model_chooses_tools_when_the_server_has_tested_that(said: bool | None) -> None:
    async with ScriptedOpenAI() as script, models(script.url) as found:
        script.able = {"chooses_tools": said}
        assert await found.chooses_tools() is said
    async with ScriptedOpenAI() as script, models(script.url) as found:
        script.tools = "forced"  # it is too small to choose
        assert await found.chooses_tools() is False
        assert await found.chooses_tools("unheard-of")  # as on a server that describes no models


async def test_the_card_tells_what_a_prompt_may_cost() -> None:
    async with ScriptedOpenAI() as script, models(script.url) as found:
        script.card = {
            "max_model_len": 4096,
            "window": 4096,
            "parameters": 600_000_000,
            "prompt_tokens_per_second": 512.5,
            "weights": "Qwen3-0.6B-Q8_0",
        }
        script.able = {"chooses_tools": True}
        card = await found.card()
        assert card is not None
        assert (card.parameters, card.prompt_tokens_per_second) == (600_000_000, 512.5)
        assert (card.max_model_len, card.weights) == (4096, "Qwen3-0.6B-Q8_0")
        assert (card.capabilities.tools, card.capabilities.chooses_tools) == ("native", True)
        assert await found.card("nobody") is None


async def test_a_call_may_differ_from_the_configuration_and_says_what_it_cost() -> None:
    spent: list[tuple[str, int, int]] = []
    async with ScriptedOpenAI() as script:
        async with AgentClient.open(
            AgentSettings(api_url=script.url),
            lambda options, usage: spent.append((options.purpose, usage.prompt, usage.completion)),
        ) as client:
            script.say("One two three.")
            options = RequestOptions(
                "s", "background", purpose="facts", temperature=0.0, max_tokens=7
            )
            await client.chat(ASKED, options, response_format={"type": "json_object"})
        [request] = script.requests
    assert (request["temperature"], request["max_tokens"]) == (0.0, 7)
    assert request["response_format"] == {"type": "json_object"}
    assert spent == [("facts", 2, 3)]
