"""Several upstreams as one model: what they are, and where each conversation goes."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import get_args
from urllib.parse import urlsplit

import httpx2
import pytest

from agent_server.engines.openai import OpenAIEngine
from agent_server.engines.upstream_pool import UpstreamConfig
from agent_server.errors import EngineMisconfigured
from tests.kit.agent_server import agent_client, agent_server
from tests.kit.openai_script import Answer, ScriptedOpenAI
from tests.kit.patience import PATIENCE
from tests.kit.ports import free_port
from tests.kit.upstream_servers import MODELS, Kind, upstream_server

CHAT = "/v1/chat/completions"
HELLO = {"messages": [{"role": "user", "content": "one two three"}]}
KINDS: tuple[Kind, ...] = get_args(Kind)


def session(name: str) -> dict[str, str]:
    return {"x-session-id": name}


@pytest.mark.parametrize(
    ("kind", "tools", "parameters"),
    [
        ("vllm", None, 8_000_000_000),
        ("sglang", None, 8_000_000_000),
        ("llama-server", True, 8_190_735_360),
        ("ollama", True, 8_200_000_000),
        ("openrouter", True, 8_000_000_000),
        ("litellm", True, 8_000_000_000),
    ],
)
async def test_what_each_kind_tells_of_its_model_is_understood(
    kind: Kind, tools: bool | None, parameters: int
) -> None:
    async with upstream_server(kind) as upstream:
        engine = OpenAIEngine(UpstreamConfig([upstream.url], timeout=10))
        async with engine.lifespan():
            info = await engine.model_info()
    assert (info.tools, info.parameters) == (tools, parameters)
    assert info.weights == MODELS[kind]


async def test_a_list_may_have_all_kinds_each_is_asked_for_the_model_that_it_has() -> None:
    async with AsyncExitStack() as stack:
        upstreams = [await stack.enter_async_context(upstream_server(kind)) for kind in KINDS]
        urls = ",".join(each.url for each in upstreams)
        url = await stack.enter_async_context(
            agent_server({"upstream": urls, "chooses_tools": False})
        )
        http = await stack.enter_async_context(httpx2.AsyncClient(base_url=url, timeout=PATIENCE))
        answered = set()
        for number in range(60):  # so many that some go to each, wherever they listen
            answer = await http.post(CHAT, json=HELLO, headers=session(str(number)))
            assert answer.status_code == 200, answer.text
            answered.add(answer.json()["choices"][0]["message"]["content"])
        assert answered == set(KINDS)
        for _ in range(8):
            counted = await http.post("/tokenize", json={"prompt": "one two three"})
            assert counted.json()["count"] == 3


async def test_a_conversation_goes_elsewhere_while_its_upstream_is_full_and_comes_back() -> None:
    async with ScriptedOpenAI(model="m") as one, ScriptedOpenAI(model="m") as two:
        model = {"upstream": f"{one.url},{two.url}", "slots": 2}
        async with agent_client(model) as http:
            one.requests.clear()
            two.requests.clear()
            await http.post(CHAT, json=HELLO, headers=session("s"))
            home, other = (one, two) if one.requests else (two, one)
            home.default = Answer("slow", late=True)
            body = {**HELLO, "stream": True}
            busy = asyncio.create_task(http.post(CHAT, json=body, headers=session("s")))
            await home.arrived(2)
            await http.post(CHAT, json=HELLO, headers=session("s"))
            assert len(other.requests) == 1  # a slot for each of the two: this one is taken
            home.default = Answer("ok")
            home.release()
            await busy
            await http.post(CHAT, json=HELLO, headers=session("s"))
            assert len(home.requests) == 3


async def test_the_metrics_show_which_upstream_is_down() -> None:
    gone = f"http://127.0.0.1:{free_port()}"
    async with (
        ScriptedOpenAI(model="m") as script,
        agent_client({"upstream": f"{gone},{script.url}", "slots": 2}) as http,
    ):
        down, up = (
            f'terrarium_upstream_up{{model="terra",upstream="{urlsplit(url).netloc}"}} {value}'
            for url, value in ((gone, 0.0), (script.url, 1.0))
        )
        async with asyncio.timeout(PATIENCE):
            while down not in (text := (await http.get("/metrics")).text):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert up in text


async def test_a_router_is_told_the_conversation_without_its_name_and_the_trace() -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with (
        upstream_server("vllm") as upstream,
        agent_client({"upstream": upstream.url, "chooses_tools": False}) as http,
    ):
        for name in ("irc/#secret", "irc/#secret", "irc/#other"):
            await http.post(CHAT, json=HELLO, headers=session(name))
        await http.post(CHAT, json=HELLO)
        told = [headers.get("x-session-id") for headers in upstream.headers][-4:]
        assert told[0] == told[1] != told[2]
        assert told[3] is None
        assert all("secret" not in str(headers) for headers in upstream.headers)
        upstream.headers.clear()
        for value in (trace, "anything"):
            await http.post(CHAT, json=HELLO, headers={"traceparent": value})
    assert [headers.get("traceparent") for headers in upstream.headers] == [trace, None]
    assert all("traceparent" not in body for body in upstream.chats)


async def test_an_upstream_that_came_back_with_another_model_is_asked_for_that() -> None:
    async with ScriptedOpenAI(model="before") as script:
        engine = OpenAIEngine(UpstreamConfig([script.url], timeout=10))
        async with engine.lifespan():
            assert await _model(engine, script) == "before"
            script.model = "after"
            script.answer(Answer("the model `before` does not exist", status=404))
            with pytest.raises(EngineMisconfigured):
                await _model(engine, script)
            assert await _model(engine, script) == "after"


async def _model(engine: OpenAIEngine, script: ScriptedOpenAI) -> str:
    """The model that an upstream is asked for now."""
    async for _ in engine.chat(HELLO, None):
        pass
    return str(script.requests[-1]["model"])
