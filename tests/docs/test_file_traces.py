"""Limits of the code path of a chat completion: files it runs through, generators per chunk."""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Scope

from agent_server.app import create_app
from terrarium.config import Config
from tests.docs.reference import ROOT
from tests.kit.openai_script import ScriptedOpenAI

pytest_plugins = ("tests.kit.scripted_server",)

PACKAGES = ("agent_server", "harnesses", "llm", "storage", "terrarium")
MOST_FILES = 24
"""Limit of our files that run for a chat completion in the server process."""
MOST_GENERATORS = 6
"""Limit of our asynchronous generators that a chunk passes through."""

KEY = "s3cret"
CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Trace:
    """The files whose functions ran, as paths relative to the repository, and the names of the
    asynchronous generators that ran."""

    files: set[str] = field(default_factory=set)
    generators: set[str] = field(default_factory=set)


@contextmanager
def traced_files() -> Iterator[Trace]:
    """Collect our files whose functions run in the block.

    Other tasks are excluded. Callbacks of the event loop, such as those that receive data, belong
    to no task and are included.
    """
    folders = tuple(f"{ROOT / package}/" for package in PACKAGES)
    own, trace = asyncio.current_task(), Trace()

    def on_event(frame: FrameType, event: str, _argument: Any) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(folders) and asyncio.current_task() in (own, None):
            trace.files.add(str(Path(path).relative_to(ROOT)))
            if frame.f_code.co_flags & inspect.CO_ASYNC_GENERATOR:
                trace.generators.add(frame.f_code.co_qualname)

    before = sys.getprofile()
    sys.setprofile(on_event)
    try:
        yield trace
    finally:
        sys.setprofile(before)


async def post(app: ASGIApp, path: str, body: Mapping[str, Any]) -> tuple[int, bytes]:
    """Send a POST request to an application in this task; return the status and the body."""
    content = json.dumps(body).encode()
    headers = [
        (b"host", b"localhost"),
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
        (b"authorization", f"Bearer {KEY}".encode()),
        (b"x-session-id", b"irc/net/#frogs"),
    ]
    scope: Scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST",
        "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": b"",
        "root_path": "", "headers": headers, "server": ("localhost", 80), "state": {},
        "client": ("127.0.0.1", 1),
    }  # fmt: skip
    arriving: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]
    sent: list[Message] = []

    async def receive() -> Message:
        if arriving:
            return arriving.pop()
        await asyncio.Event().wait()  # the client stays connected
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


@asynccontextmanager
async def running_app(data: Path, **model: Any) -> AsyncIterator[FastAPI]:
    """Run an agent server with a key; yield it when its model's capabilities are known."""
    tables = {"model": model, "server": {"admin_key": KEY}}
    app = create_app(Config(tables, None, data))
    async with app.router.lifespan_context(app):
        while not await app.state.server.pool.ready():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        yield app


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_chat_completion_touches_few_files(
    script: ScriptedOpenAI, tmp_path: Path, stream: bool
) -> None:
    script.say("one two three").say("one two three")
    body = {"messages": [{"role": "user", "content": "hi"}], "stream": stream}
    async with running_app(tmp_path, upstream=script.url) as app:
        await post(app, CHAT, body)  # warm-up: excludes lazy initialisation
        with traced_files() as trace:
            status, answer = await post(app, CHAT, body)
    assert status == 200
    assert b"three" in answer
    assert len(trace.files) <= MOST_FILES, "\n".join(sorted(trace.files))
    assert "HttpEngine.chat" in trace.generators
    assert len(trace.generators) <= MOST_GENERATORS, trace.generators


async def test_a_tool_call_made_here_passes_few_generators(
    script: ScriptedOpenAI, tmp_path: Path
) -> None:
    call = '{"name": "look", "arguments": {}}'
    script.say(call).say(call)
    tool = {"type": "function", "function": {"name": "look"}}
    body = {"messages": [{"role": "user", "content": "hi"}], "tools": [tool], "stream": True}
    model = {"upstream": script.url, "tools": "constrained", "chooses_tools": True}
    async with running_app(tmp_path, **model) as app:
        with traced_files() as trace:
            status, answer = await post(app, CHAT, body)
    assert status == 200
    assert b"tool_calls" in answer
    assert len(trace.generators) <= MOST_GENERATORS, trace.generators
