"""Counting growing prompts: exact when it matters, and no request when it cannot."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from llm.client.client import AgentClient, RequestOptions, TokenCounter, TokenCountResult
from llm.client.settings import AgentSettings
from llm.messages.message import Message
from terrarium.config import Config
from tests.kit.openai_script import ScriptedOpenAI

WINDOW = 600


@dataclass(slots=True)
class Metered:
    """A meter, and how often the server was asked."""

    token_counter: TokenCounter
    script: ScriptedOpenAI

    async def count(
        self, *texts: str, conversation: str = "a", reserve: int = 100
    ) -> TokenCountResult:
        messages: list[Message] = [{"role": "user", "content": text} for text in texts]
        return await self.token_counter.count(RequestOptions(conversation), messages, (), reserve)

    @property
    def asked(self) -> int:
        return self.script.counted


@pytest.fixture
async def metered() -> AsyncIterator[Metered]:
    async with ScriptedOpenAI(max_model_len=WINDOW) as script:
        config = Config({"agent": {"api_url": script.url}}, None, Path())
        async with AgentClient.open(config.section(AgentSettings)) as client:
            yield Metered(TokenCounter(client), script)


async def test_what_grows_a_little_is_bounded_without_asking(metered: Metered) -> None:
    assert await metered.count("one two three") == TokenCountResult(3, WINDOW)
    grown = await metered.count("one two three", "four")
    assert 4 <= grown.tokens <= WINDOW - 100
    assert metered.asked == 1


async def test_what_might_not_fit_is_counted(metered: Metered) -> None:
    await metered.count("one")
    assert await metered.count("one", "word " * 120) == TokenCountResult(121, WINDOW)
    assert metered.asked == 2


async def test_a_prompt_that_begins_otherwise_is_counted(metered: Metered) -> None:
    await metered.count("one", "two")
    assert await metered.count("two") == TokenCountResult(1, WINDOW)
    assert await metered.count("one", "two", conversation="b") == TokenCountResult(2, WINDOW)
    assert metered.asked == 3


async def test_what_is_forgotten_is_counted_anew(metered: Metered) -> None:
    await metered.count("one")
    metered.token_counter.forget(RequestOptions("a"))
    await metered.count("one")
    assert metered.asked == 2
