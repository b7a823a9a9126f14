"""MCP servers of every kind, as programs: those that work, and those that would do harm."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import psutil
import pytest

from llm.mcp.connection import MAX_SCHEMA_LENGTH, MAX_TOOLS
from llm.mcp.servers import McpServers
from llm.tools.consent import Asker
from llm.tools.toolbox import Toolbox, tool
from terrarium.config import ConfigError
from tests.kit.mcp_servers import call, configured, connected, names
from tests.kit.patience import PATIENCE, until

pytestmark = pytest.mark.process


def program(kind: str, **settings: Any) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.kit.mcp_server", kind]
    return {"command": command, **settings}


def children() -> list[psutil.Process]:
    return [each for each in psutil.Process().children() if "mcp_server" in _command(each)]


def _command(process: psutil.Process) -> str:
    try:
        return str(process.cmdline())
    except psutil.NoSuchProcess:  # also one that has ended and was not waited for
        return ""


async def test_its_tools_are_offered_under_its_name_called_and_followed() -> None:
    async with connected(demo=program("plain", reads=("echo",))) as servers:
        await until(lambda: names(servers))
        assert names(servers)[:2] == ["demo__echo", "demo__die"]
        result = await call(servers, "demo__echo", words=["frogs", 7], more={"x": None})
        assert result.ok
        assert '{"words": ["frogs", 7], "more": {"x": null}}' in result.text
        toolbox = Toolbox.from_owners(servers)
        assert toolbox.options("demo__echo").reads
        assert toolbox.options("demo__change").effect  # unless the owner says that it only reads
        failed = await call(servers, "demo__fail", why="no frogs")
        assert not failed.ok
        assert "no frogs" in failed.text
        late = await call(servers, "demo__sleep", 0.2)
        assert "no result within 0.2 seconds" in late.text
        assert (await call(servers, "demo__change")).ok
        await until(lambda: "demo__added" in names(servers))
        assert (await call(servers, "demo__echo")).ok
    assert children() == []


async def test_only_the_tendrils_and_tools_that_are_named_and_who_has_the_right() -> None:
    settings = program("plain", tools=("e*",), needs="operate")
    servers = McpServers()
    servers.configure("web", configured(demo=settings))
    assert names(servers) == []
    async with connected(demo=settings) as servers:
        await until(lambda: names(servers))
        assert names(servers) == ["demo__echo", "demo__environment"]
        assert "may not" in (await call(servers, "demo__echo")).text
        admin = Toolbox.from_owners(servers, asker=Asker(rights=lambda: {"operate"}))
        assert (await admin.call("demo__echo", "{}", PATIENCE)).ok


async def test_it_is_told_nothing_of_our_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEB_TOKEN", "our-own-secret")
    async with connected(demo=program("plain", env={"TICKETS": "its-own"})) as servers:
        await until(lambda: names(servers))
        told = (await call(servers, "demo__environment")).text
        assert "its-own" in told
        assert "our-own-secret" not in told


async def test_one_that_dies_in_mid_call_is_started_again() -> None:
    async with connected(demo=program("plain")) as servers:
        await until(lambda: names(servers))
        (before,) = children()
        result = await call(servers, "demo__die")
        assert (result.ok, result.indeterminate) == (False, True)
        await until(lambda: names(servers) and children() and children()[0].pid != before.pid)
        assert (await call(servers, "demo__echo")).ok


async def test_one_that_is_killed_fails_the_call_and_no_other() -> None:
    async with connected(demo=program("plain"), other=program("plain")) as servers:
        await until(lambda: len(names(servers)) == 12)
        calling = asyncio.create_task(call(servers, "demo__sleep"))
        beside = await call(servers, "other__echo")
        victim = min(children(), key=lambda each: each.create_time())
        os.kill(victim.pid, 9)
        assert beside.ok
        result = await asyncio.wait_for(calling, PATIENCE)
        assert not result.ok
        assert (await call(servers, "other__echo")).ok


async def test_why_a_server_does_not_run_is_told_without_its_secrets() -> None:
    broken = program("complains", env={"TICKETS": "its-own-secret"})
    async with connected(demo=broken, other=program("plain")) as servers:
        await until(lambda: servers.troubles() and names(servers))
        (trouble,) = servers.troubles().values()
        assert "its last words: " in trouble
        assert "no key *** here" in trouble
        assert len(trouble) < 200
        assert "\x1b" not in trouble
        assert "<system>" not in trouble
        servers.configure("irc", configured(demo=program("plain"), other=program("plain")))
        await until(lambda: len(names(servers)) == 12)
        assert servers.troubles() == {}


async def test_a_program_that_is_not_there_is_named_and_harms_no_other() -> None:
    async with connected(demo={"command": ["/nowhere/x"]}, good=program("plain")) as servers:
        await until(lambda: servers.troubles() and names(servers))
        assert "/nowhere/x" in servers.troubles()["demo"]
        assert (await call(servers, "good__echo")).ok


@pytest.mark.parametrize("kind", ["hangs", "endless", "floods"])
async def test_one_that_hangs_or_floods_keeps_no_other_from_working(kind: str) -> None:
    async with connected(bad=program(kind), good=program("plain")) as servers:
        await until(lambda: "good__echo" in names(servers))
        for number in range(20):
            assert (await call(servers, "good__echo", number=number)).ok
        if kind != "hangs":
            await until(lambda: len(children()) == 1)  # it has been cut off
    assert children() == []


async def test_a_result_of_10_megabytes_is_an_error_and_the_server_starts_again() -> None:
    async with connected(demo=program("huge")) as servers:
        await until(lambda: names(servers))
        result = await call(servers, "demo__echo")
        assert not result.ok
        assert len(result.text) < 1000
        await until(lambda: names(servers))


async def test_of_10_000_tools_the_first_are_offered() -> None:
    async with connected(demo=program("many")) as servers:
        await until(lambda: names(servers))
        assert len(names(servers)) == MAX_TOOLS


class Ours:
    @tool(reads=True)
    async def search_log(self) -> str:
        """Search."""
        return "ours"


async def test_names_collide_neither_with_ours_nor_with_one_another() -> None:
    async with connected(demo=program("collides")) as servers:
        await until(lambda: names(servers))
        found = names(servers)
        assert len(found) == len(set(found))
        assert all(name.startswith("demo__") and len(name) <= 64 for name in found)
        toolbox = Toolbox.from_owners(servers, Ours())
        assert "ours" in (await toolbox.call("search_log", "{}", PATIENCE)).text
        assert {"search_log", "demo__search_log"} <= set(toolbox.names())
    with pytest.raises(TypeError, match="belong to the tools of MCP servers"):

        @tool
        async def demo__echo() -> None:
            """Pretend to be foreign."""


async def test_lies_in_descriptions_and_results_stay_data() -> None:
    async with connected(demo=program("lies")) as servers:
        await until(lambda: names(servers))
        toolbox = Toolbox.from_owners(servers)
        schemas = {each["function"]["name"]: each for each in toolbox.schemas()}
        assert "demo__bulky" not in schemas
        described = json.dumps(schemas["demo__helper"])
        assert len(described) < MAX_SCHEMA_LENGTH
        assert "<system>" not in described
        assert "pattern" not in described
        parameters = schemas["demo__helper"]["function"]["parameters"]
        assert set(parameters["properties"]) == {"x", "self"}
        assert parameters["required"] == ["x"]
        assert toolbox.options("demo__helper").effect  # it only says that it reads
        result = await call(servers, "demo__helper", x="a")  # whose schema would never end
        assert result.ok
        assert result.text.count("</tool_result>") == 1
        assert "<system>" not in result.text


async def test_it_may_ask_neither_our_model_nor_our_people_nor_for_our_files() -> None:
    async with connected(demo=program("asks")) as servers:
        await until(lambda: names(servers))
        result = await call(servers, "demo__echo")
        assert result.text.count(": true") == 3, result.text
        assert ": false" not in result.text


async def test_one_that_will_not_stop_is_stopped() -> None:
    async with connected(demo=program("stubborn")) as servers:
        await until(lambda: names(servers))
        assert len(children()) == 1
    assert children() == []


async def test_a_changed_configuration_counts_at_once() -> None:
    async with connected(demo=program("plain"), gone=program("plain")) as servers:
        await until(lambda: len(names(servers)) == 12)
        kept = {each.pid for each in children()}
        servers.configure(
            "irc", configured(demo=program("plain"), new=program("plain", tools=("echo",)))
        )
        await until(lambda: "new__echo" in names(servers) and len(children()) == 2)
        assert len(names(servers)) == 7
        assert kept & {each.pid for each in children()}


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ({"command": ["x"], "tendrils": []}, "tendrils"),
        ({}, "either the command"),
        ({"command": ["x"], "url": "http://x"}, "either the command"),
        ({"url": "ftp://x"}, "https://host/path"),
        ({"command": ["x"], "token": "y"}, "goes with a url"),
        ({"command": ["x"], "tool": ["y"]}, "tool"),
    ],
)
def test_a_wrong_table_says_what_to_write(server: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        McpServers().configure("irc", configured(demo=server))


def test_the_name_of_a_server_begins_names_of_tools() -> None:
    for name in ("two__parts", "UPPER", "", "x" * 17, "ünïcode"):
        with pytest.raises(ConfigError, match="in lower case"):
            McpServers().configure("irc", configured(**{name: program("plain")}))
