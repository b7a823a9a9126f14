"""Single turns of a scripted model, with tools that record their calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from llm.agent.agent_loop import AgentLoop
from llm.agent.tool_executor import RunLimits
from llm.agent.trace import Outcome
from llm.client.client import AgentClient, RequestOptions
from llm.client.settings import AgentSettings
from llm.messages.message import Message
from llm.tools.toolbox import IndeterminateToolError, Toolbox, ToolError, tool
from tests.kit.agent_server import agent_server
from tests.kit.openai_script import ScriptedOpenAI

NATIVE = RequestOptions("test")
FILTERED = RequestOptions("test", filters_output=True)
ASKED: list[Message] = [{"role": "user", "content": "ada asks: who is here?"}]


class World:
    """Tools of different kinds (effect, research, quiet) that record their calls."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.looked: list[str] = []
        self.noted: list[str] = []

    @tool(effect=True, speaks=True)
    async def say(self, text: str) -> str:
        """Say something to people."""
        self.said.append(text)
        return "said"

    @tool(effect=True)
    async def refuse(self) -> str:
        """Do nothing, with a reason."""
        self.said.append("refused")
        raise ToolError("not allowed")

    @tool(effect=True)
    async def stumble(self) -> str:
        """Do something, perhaps."""
        self.said.append("stumbled")
        raise IndeterminateToolError("the connection broke")

    @tool(reads=True, research=True)
    async def look(self, query: str) -> str:
        """Look something up."""
        self.looked.append(query)
        return f"seen {query}"

    @tool(quiet=True)
    async def note(self, text: str) -> str:
        """Keep a note."""
        self.noted.append(text)
        return "noted"


async def run(
    script: ScriptedOpenAI,
    *owners: object,
    smart: str = "",
    options: RequestOptions = FILTERED,
    shown: list[str] | None = None,
    asked: Sequence[Message] = ASKED,
    **values: Any,
) -> Outcome:
    """Run one turn whose prompt is `asked` and the steps so far.

    `options` are those of a small model by default. `owners` have the tools, `values` are settings
    of `[agent]`, and `shown` collects the streamed pieces; an empty piece clears it. A prompt that
    the server refuses as too long is sent again with half of `asked`.
    """

    async def show(piece: str) -> None:
        assert shown is not None
        if not piece:
            shown.clear()
        shown.append(piece)

    fitting = list(asked)

    async def fit(steps: Sequence[Message]) -> list[Message]:
        return [*fitting, *steps]

    def shrink() -> None:
        del fitting[: len(fitting) // 2]

    agent = AgentSettings(**{"api_url": script.url, **values})
    async with AgentClient.open(agent) as client:
        turn = AgentLoop(
            client,
            Toolbox.from_owners(*owners),
            options,
            RunLimits.from_settings(agent, "standard"),
            smart=smart,
        )
        return await turn.run(fit, shrink=shrink, on_text=None if shown is None else show)


@asynccontextmanager
async def reading_texts(script: ScriptedOpenAI) -> AsyncIterator[str]:
    """Run an agent server that reads the calls in what the model `script` writes; yield its URL,
    to be the `api_url` of a run."""
    model = {"upstream": script.url, "tools": "constrained", "chooses_tools": True}
    async with agent_server(model) as url:
        yield url


def results(messages: Sequence[Message]) -> list[str]:
    """Return the second line of each tool result: its text, between the tags."""
    return [m["content"].split("\n")[1] for m in messages if m["role"] == "tool"]


def models(script: ScriptedOpenAI) -> list[str]:
    return [request["model"] for request in script.requests]
