"""`terrarium mcp` as desktop clients start it: the official client at its standard input."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters
from mcp_types import PromptReference

from tests.kit.command import terrarium
from tests.kit.mcp_client import text, value
from tests.kit.web_site import NOBODY, event, web_site

pytestmark = pytest.mark.process
TOKENS = {"red": {"token": "red-token", "channels": ["irc/#red"]}}


def command(data: Path, *options: str, token: str = "") -> StdioServerParameters:
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "harnesses.cli", "mcp", "--data", str(data), *options],
        env={"WEB_TOKEN": token} if token else None,
        cwd=data,
    )


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_desktop_client_uses_the_running_web_tendril(tmp_path: Path, mode: str) -> None:
    events = [event("the frogs are awake")]
    async with (
        web_site(tmp_path, events=events) as site,
        Client(command(tmp_path), mode=mode) as client,
    ):
        assert "untrusted" in (client.instructions or "")
        assert len((await client.list_tools()).tools) == 5
        found = value(await client.call_tool("search_log", {"query": "frogs"}))
        assert [line["text"] for line in found["lines"]] == ["the frogs are awake"]
        (day,) = (await client.list_resources()).resources
        assert "the frogs are awake" in text(await client.read_resource(day.uri))
        assert len((await client.list_resource_templates()).resource_templates) == 2
        assert (await client.call_tool("search_log")).is_error
        assert len((await client.list_prompts()).prompts) == 3
        asked = await client.get_prompt("catch_up", {"channel": "#ubuntu"})
        assert "#ubuntu" in str(asked.messages)
        named = {"name": "channel", "value": "ub"}
        completed = await client.complete(PromptReference(name="catch_up"), named)
        assert completed.completion.values == ["irc/#ubuntu"]
        await site.said("and now they sleep")
        assert value(await client.call_tool("read_log"))["lines"][-1]["text"].endswith("sleep")


@pytest.mark.slow
async def test_it_reads_what_its_token_opens(tmp_path: Path) -> None:
    events = [event("crimson", channel="#red"), event("emerald", channel="#green")]
    settings = {"token": "whole-token", "tokens": TOKENS}
    async with web_site(tmp_path, events=events, settings=settings) as site:
        async with Client(command(tmp_path, "--url", site.url, token="red-token")) as client:
            lines = value(await client.call_tool("read_log"))["lines"]
            assert [line["text"] for line in lines] == ["crimson"]
        done = await terrarium("mcp", "--url", site.url, "--data", ".", cwd=tmp_path)
        assert done.status == 1
        assert "set WEB_TOKEN" in done.err


async def test_it_says_what_to_do_when_there_is_no_web_tendril(tmp_path: Path) -> None:
    done = await terrarium("mcp", "--data", ".", cwd=tmp_path)
    assert (done.status, done.out) == (1, "")
    assert "start `terrarium up`" in done.err
    done = await terrarium("mcp", "--url", NOBODY, "--data", ".", cwd=tmp_path)
    assert done.status == 1
    assert "cannot be reached" in done.err
