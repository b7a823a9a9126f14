"""An agent server in front of a scripted model, and the official SDKs as its clients.

A test module takes the fixtures with `pytest_plugins = ("tests.kit.scripted_server",)`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from tests.kit.agent_server import agent_server
from tests.kit.openai_script import ScriptedOpenAI


@pytest.fixture
async def script() -> AsyncIterator[ScriptedOpenAI]:
    """The model whose words the test says."""
    async with ScriptedOpenAI() as upstream:
        yield upstream


@pytest.fixture
async def url(script: ScriptedOpenAI) -> AsyncIterator[str]:
    """The server's address."""
    async with agent_server({"upstream": script.url}) as address:
        yield address


@pytest.fixture
async def openai(url: str) -> AsyncIterator[AsyncOpenAI]:
    """OpenAI's client, which tries nothing twice."""
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
        yield client


@pytest.fixture
async def claude(url: str) -> AsyncIterator[AsyncAnthropic]:
    """Anthropic's client, which tries nothing twice."""
    async with AsyncAnthropic(base_url=url, api_key="any", max_retries=0) as client:
        yield client
