"""Tools of other tendrils at /mcp: found, described, called, and run where their tendril is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, ClassVar

import pytest
from mcp.client.subscriptions import ToolsListChanged
from pydantic import Field

from llm.tools.log_search import LogSearch, LogTools
from llm.tools.toolbox import ResultLength, ToolError, tool
from storage.chat_log.event import Scope
from terrarium import Config
from tests.kit.mcp_client import mcp_client, text
from tests.kit.patience import PATIENCE
from tests.kit.room_tendril import PERSONA, RoomTendril, ready
from tests.kit.web_site import event, web_site

FROGS = "irc/#frogs"


class FoundLines:
    """A tool over the log, within a scope."""

    def __init__(self, tools: LogTools) -> None:
        self._tools = tools

    @tool(reads=True, mcp=True)
    async def recall(self, words: str) -> str:
        """Recall what was said."""
        return str(await self._tools.search_log(LogSearch(query=words), ResultLength(1_000)))


class Kettle(RoomTendril):
    """A kettle that heats water."""

    name: ClassVar[str] = "kettle"
    degrees = 20

    @tool(mcp=True)
    async def heat(self, degrees: Annotated[int, Field(ge=1, le=80)]) -> dict[str, int]:
        """Heat the water by some degrees."""
        if self.degrees + degrees > 100:
            raise ToolError("it would boil over")
        self.degrees += degrees
        return {"degrees": self.degrees}

    @tool(mcp=True, needs="drain")
    async def drain(self) -> str:
        """Let the water out."""
        return "drained"

    @tool
    async def lid(self) -> str:
        """Lift the lid, which is for our own model only."""
        return "lifted"

    def mcp_owners(self, scope: Scope) -> Sequence[object]:
        """Offer what is marked, and the log within the scope of whoever calls."""
        return (self, FoundLines(self.log.tools_within(scope)))


@asynccontextmanager
async def kettle(data: Path) -> AsyncIterator[Kettle]:
    agent = {"api_url": "http://127.0.0.1:9", "personas": {"kettle": PERSONA}}
    async with ready(Kettle(Config({"agent": agent}, None, data))) as running:
        yield running


@pytest.mark.server
async def test_a_tool_is_found_and_called_and_clients_are_told_that_it_comes_and_goes(
    tmp_path: Path,
) -> None:
    async with (
        web_site(tmp_path) as site,
        mcp_client(site.url) as client,
        client.listen(tools_list_changed=True) as changes,
        asyncio.timeout(PATIENCE),
    ):
        async with kettle(tmp_path) as running:
            assert await anext(changes) == ToolsListChanged()
            listed = (await client.list_tools()).tools
            tools = {each.name: each.description for each in listed}
            assert tools["kettle_heat"] == "Heat the water by some degrees."
            assert "kettle_lid" not in tools
            made = await client.call_tool("kettle_heat", {"degrees": 30})
            assert (made.is_error, text(made), running.degrees) == (False, '{"degrees": 50}', 50)
            boiling = await client.call_tool("kettle_heat", {"degrees": 80})
            assert (boiling.is_error, text(boiling)) == (True, "it would boil over")
            wrong = await client.call_tool("kettle_heat", {"degrees": 1_000})
            assert (wrong.is_error, "degrees" in text(wrong)) == (True, True)
            drained = await client.call_tool("kettle_drain")
            assert (drained.is_error, "may not" in text(drained)) == (True, True)
            assert running.degrees == 50
        assert await anext(changes) == ToolsListChanged()
        assert "kettle_heat" not in {each.name for each in (await client.list_tools()).tools}


@pytest.mark.server
async def test_a_tool_of_another_tendril_is_called_with_the_scope_of_the_token(
    tmp_path: Path,
) -> None:
    events = [event("a secret of the toads", channel="#toads"), event("frogs", channel="#frogs")]
    settings = {"token": "whole", "tokens": {"guests": {"token": "some", "channels": [FROGS]}}}
    async with (
        web_site(tmp_path, events=events, settings=settings) as site,
        kettle(tmp_path),
        mcp_client(site.url, token="whole") as owner,
        mcp_client(site.url, token="some") as guest,
    ):
        whole = text(await owner.call_tool("kettle_recall", {"words": "secret"}))
        part = text(await guest.call_tool("kettle_recall", {"words": "secret"}))
        assert "a secret of the toads" in whole
        assert "toads" not in part
