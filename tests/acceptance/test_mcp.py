"""MCP as others have it: public servers that the model uses, and the inspector at our own."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.kit.mcp_client import mcp_client, value
from tests.kit.mcp_packages import node_program, python_server
from tests.kit.openai_script import Answer, ScriptedOpenAI
from tests.kit.patience import PATIENCE
from tests.kit.web_site import event, web_site

pytestmark = [pytest.mark.process, pytest.mark.slow]


@dataclass(frozen=True)
class PublicServer:
    """A server that anybody can install, the call of one of its tools, and words of the result."""

    command: Callable[[Path], list[str]]
    tool: str
    arguments: Callable[[Path, str], dict[str, Any]]
    words: str


def repository(folder: Path) -> str:
    """A new repository with a file that is not committed."""
    subprocess.run(["git", "init", "-q", str(folder / "frogs")], check=True)
    (folder / "frogs" / "pond.txt").write_text("a pond")
    return str(folder / "frogs")


def files(folder: Path) -> str:
    (folder / "files").mkdir()
    (folder / "files" / "pond.txt").write_text("the frogs are awake")
    return str(folder / "files")


SERVERS = {
    "time": PublicServer(
        lambda _: [python_server("mcp-server-time"), "--local-timezone", "UTC"],
        "get_current_time",
        lambda *_: {"timezone": "Europe/Vienna"},
        "Europe/Vienna",
    ),
    "fetch": PublicServer(
        lambda _: [python_server("mcp-server-fetch"), "--ignore-robots-txt", "--allow-private-ips"],
        "fetch",
        lambda _, url: {"url": f"{url}/health", "raw": True},
        '{"status":"ok"}',
    ),
    "git": PublicServer(
        lambda folder: [python_server("mcp-server-git"), "--repository", repository(folder)],
        "git_status",
        lambda folder, _: {"repo_path": str(folder / "frogs")},
        "pond.txt",
    ),
    "filesystem": PublicServer(
        lambda folder: [
            node_program("@modelcontextprotocol/server-filesystem", "mcp-server-filesystem"),
            files(folder),
        ],
        "read_text_file",
        lambda folder, _: {"path": str(folder / "files" / "pond.txt")},
        "the frogs are awake",
    ),
    "everything": PublicServer(
        lambda _: [
            node_program("@modelcontextprotocol/server-everything", "mcp-server-everything")
        ],
        "echo",
        lambda *_: {"message": "the frogs are awake"},
        "Echo: the frogs are awake",
    ),
}


@pytest.mark.parametrize("name", SERVERS)
async def test_the_model_uses_a_public_server(tmp_path: Path, name: str) -> None:
    server = SERVERS[name]
    settings = {"command": server.command(tmp_path), "tendrils": ["web"]}
    async with (
        ScriptedOpenAI(max_model_len=65_536) as script,
        web_site(
            tmp_path, agent_url=script.url, tables={"mcp": {"servers": {name: settings}}}
        ) as site,
        mcp_client(site.url) as client,
    ):
        call = (f"{name}__{server.tool}", json.dumps(server.arguments(tmp_path, site.url)))

        def answer(body: dict[str, Any]) -> Answer:
            offered = [each["function"]["name"] for each in body.get("tools", [])]
            if body["messages"][-1]["role"] == "tool":
                return Answer("That is all.")
            return Answer(calls=(call,)) if call[0] in offered else Answer("Not yet.")

        script.default = answer
        async with asyncio.timeout(2 * PATIENCE):
            said = "Not yet."
            while said == "Not yet.":  # until the program has started, which nothing announces
                await asyncio.sleep(2.5)  # who asks faster is told to wait
                asked = await client.call_tool("ask", {"question": "What do you find?"})
                said = value(asked)["answer"]
        result = script.requests[-1]["messages"][-1]["content"]
        assert server.words in result
        assert result.startswith(f'<tool_result tool="{call[0]}">')


async def test_the_inspector_lists_and_calls_everything(tmp_path: Path) -> None:
    inspector = node_program("@modelcontextprotocol/inspector", "mcp-inspector")
    events = [event("the frogs are awake")]

    async def inspect(url: str, *options: str) -> Any:
        process = await asyncio.create_subprocess_exec(
            inspector,
            *("--cli", f"{url}/mcp", "--transport", "http", *options),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        return json.loads(out)

    async with (
        ScriptedOpenAI() as script,
        web_site(tmp_path, events=events, agent_url=script.url) as site,
    ):
        tools = (await inspect(site.url, "--method", "tools/list"))["tools"]
        given = {"search_log": ("query=frogs",), "ask": ("question=are they awake?",)}
        script.say("They are awake.")
        for name in (tool["name"] for tool in tools):
            arguments = [part for each in given.get(name, ()) for part in ("--tool-arg", each)]
            called = ("--method", "tools/call", "--tool-name", name, *arguments)
            result = await inspect(site.url, *called)
            assert not result.get("isError"), (name, result)
            assert "awake" in json.dumps(result) or name in ("channels", "who")
        resources = await inspect(site.url, "--method", "resources/list")
        assert len(resources["resources"]) == 1
        templates = await inspect(site.url, "--method", "resources/templates/list")
        assert len(templates["resourceTemplates"]) == 2
