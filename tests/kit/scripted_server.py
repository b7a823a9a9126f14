"""Fixtures: an agent server in front of a scripted model, and the official SDKs as its clients.

A test module imports them with `pytest_plugins = ("tests.kit.scripted_server",)`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from tests.kit.agent_server import agent_server
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import PATIENCE


@pytest.fixture
async def script() -> AsyncIterator[ScriptedOpenAI]:
    """The upstream, scripted by the test."""
    async with ScriptedOpenAI() as upstream:
        yield upstream


@pytest.fixture
async def url(script: ScriptedOpenAI) -> AsyncIterator[str]:
    """The agent server's base URL."""
    async with agent_server({"upstream": script.url}) as address:
        yield address


@pytest.fixture
async def http(url: str) -> AsyncIterator[httpx2.AsyncClient]:
    """An HTTP client of the agent server."""
    async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE, verify=False) as client:
        yield client


@pytest.fixture
async def openai(url: str) -> AsyncIterator[AsyncOpenAI]:
    """OpenAI's client without retries."""
    async with AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
        yield client


@pytest.fixture
async def claude(url: str) -> AsyncIterator[AsyncAnthropic]:
    """Anthropic's client without retries."""
    async with AsyncAnthropic(base_url=url, api_key="any", max_retries=0) as client:
        yield client
