"""The Messages API in front of the real model."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from anthropic import AsyncAnthropic, BadRequestError

from tests.kit.agent_server import EngineAddress, agent_server
from tests.kit.messages import HELLO, WEATHER

pytest_plugins = ("tests.kit.engine",)


@pytest.fixture
async def real(engine: EngineAddress) -> AsyncIterator[AsyncAnthropic]:
    async with (
        agent_server(engine.settings()) as address,
        AsyncAnthropic(base_url=address, api_key="any", max_retries=0) as client,
    ):
        yield client


async def test_the_tokens_of_a_conversation_are_counted(real: AsyncAnthropic) -> None:
    counted = await real.messages.count_tokens(
        model="terra", messages=HELLO, system="Be brief.", tools=[WEATHER]
    )
    message = await real.messages.create(
        model="terra", messages=HELLO, system="Be brief.", tools=[WEATHER], max_tokens=1
    )
    usage = message.usage
    assert counted.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)
    assert usage.output_tokens == 1


async def test_the_real_model_must_call_a_tool(real: AsyncAnthropic) -> None:
    async with real.messages.stream(
        model="terra",
        messages=[{"role": "user", "content": "How warm is it in Oslo?"}],
        tools=[WEATHER],
        tool_choice={"type": "any"},
        max_tokens=200,
    ) as stream:
        message = await stream.get_final_message()
    assert message.stop_reason == "tool_use"
    (use,) = message.content
    assert use.type == "tool_use"
    assert use.name == "get_weather"
    assert set(use.input) == {"city"}


async def test_a_prompt_that_is_too_long_is_refused_by_the_real_model(real: AsyncAnthropic) -> None:
    with pytest.raises(BadRequestError, match="1024"):
        await real.messages.create(
            model="terra", max_tokens=9, messages=[{"role": "user", "content": "hi " * 3000}]
        )
