"""Counting growing prompts: exact when it matters, no request when it cannot; and the window."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from llm.client.client import AgentClient, ModelCatalog, RequestOptions
from llm.client.settings import AgentSettings
from llm.client.token_usage import TokenCounter, TokenCountResult
from llm.messages.message import Message
from tests.kit.agent_server import agent_server
from tests.kit.openai_script import ScriptedOpenAI

WINDOW = 600


@dataclass(slots=True)
class Metered:
    """A meter, and how often the server was asked."""

    client: AgentClient
    token_counter: TokenCounter
    script: ScriptedOpenAI

    async def count(
        self, *texts: str, conversation: str = "a", model: str = ""
    ) -> TokenCountResult:
        options = RequestOptions(conversation, model=model, max_tokens=1)
        return await self.token_counter.count(options, messages(texts), ())

    async def window(self, model: str = "") -> int:
        """Return the window, of which one token is kept for the answer."""
        return (await self.count("one", conversation="window", model=model)).limit + 1

    @property
    def asked(self) -> int:
        return self.script.counted


def messages(texts: Sequence[str]) -> list[Message]:
    return [{"role": "user", "content": text} for text in texts]


@asynccontextmanager
async def metering(script: ScriptedOpenAI, url: str = "") -> AsyncIterator[Metered]:
    async with AgentClient.open(AgentSettings(api_url=url or script.url)) as client:
        yield Metered(client, TokenCounter(client, ModelCatalog(client)), script)


@pytest.fixture
async def metered() -> AsyncIterator[Metered]:
    async with ScriptedOpenAI(max_model_len=WINDOW) as script, metering(script) as metered:
        yield metered


async def test_only_what_might_not_fit_or_begins_otherwise_is_counted(
    metered: Metered,
) -> None:
    assert await metered.count("one two three") == TokenCountResult(3, WINDOW - 1)
    grown = await metered.count("one two three", "four")
    assert 4 <= grown.tokens < WINDOW
    assert metered.asked == 1
    long = await metered.count("one two three", "word " * 120)
    assert (long, metered.asked) == (TokenCountResult(123, WINDOW - 1), 2)
    assert await metered.count("two") == TokenCountResult(1, WINDOW - 1)  # it begins otherwise
    assert await metered.count("two", conversation="b") == TokenCountResult(1, WINDOW - 1)
    assert metered.asked == 4


async def test_a_server_that_cannot_count_is_asked_once_and_its_card_has_the_window() -> None:
    async with ScriptedOpenAI() as script:
        script.can_count = False
        script.card = {"max_model_len": 131_072}
        async with metering(script) as metered:
            for text in ("one", "two " * 3_000):
                assert (await metered.count(text)).limit == 131_071
            assert (await metered.count("two " * 3_000)).tokens > 3_000
            await metered.client.chat(messages(["two " * 3_000]), RequestOptions("b"))
            assert 3_000 <= (await metered.count("two " * 3_000)).tokens < 3_200
            assert metered.asked == 1


async def test_the_estimate_of_the_agent_server_is_no_count() -> None:
    async with (
        ScriptedOpenAI() as script,
        agent_server({"upstream": script.url, "context": 131_072}) as url,
    ):
        script.can_count = False
        async with metering(script, url) as metered:
            for text in ("one", "two " * 3_000):
                assert (await metered.count(text)).limit == 131_071
            assert metered.asked == 2  # once for the server, which says so on the card
            await metered.client.chat(messages(["two " * 3_000]), RequestOptions("b"))
            assert 3_000 <= (await metered.count("two " * 3_000)).tokens < 3_200


async def test_a_server_that_says_nothing_is_taken_to_have_a_usual_window() -> None:
    async with ScriptedOpenAI() as script:
        script.can_count, script.models = False, set()
        async with metering(script) as metered:
            assert await metered.window() == 32_768


async def test_a_window_that_turns_out_smaller_stays_so_until_another_is_stated() -> None:
    async with ScriptedOpenAI() as script:
        script.can_count = False
        script.models.add("big")
        script.card = {"max_model_len": 131_072}
        async with metering(script) as metered:
            await metered.count("word " * 60_000)
            metered.token_counter.shrink(RequestOptions("a"))
            assert await metered.window() == 65_536
            tokens = (await metered.count("word " * 10_000)).tokens
            metered.token_counter.shrink(RequestOptions("a"))
            assert await metered.window() == tokens * 3 // 4
            for _ in range(9):
                metered.token_counter.shrink(RequestOptions("a"))
            assert await metered.window() == 4_096, "a prompt must still fit"
            assert await metered.window("big") == 131_072
    async with ScriptedOpenAI(max_model_len=9_000) as script, metering(script) as metered:
        await metered.count("word")
        metered.token_counter.shrink(RequestOptions("b"))
        assert (await metered.count("word", conversation="c")).limit == 4_499
        script.max_model_len = 8_000
        assert (await metered.count("word", conversation="d")).limit == 7_999


@pytest.mark.parametrize(
    ("window", "max_tokens", "left"),
    [(8_192, 256, 7_936), (8_192, None, 6_144), (8_192, 0, 6_144), (131_072, None, 115_072)],
)
async def test_the_window_leaves_room_for_the_answer(
    window: int, max_tokens: int | None, left: int
) -> None:
    async with ScriptedOpenAI(max_model_len=window) as script, metering(script) as metered:
        options = RequestOptions("a", max_tokens=max_tokens)
        counted = await metered.token_counter.count(options, messages(["one"]), ())
    assert counted == TokenCountResult(1, left)
