"""Several upstreams as one model, engines that fail in all their ways, and clients that leave."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit

import httpx2
import psutil
import pytest

from agent_server.engines.openai import OpenAIEngine
from agent_server.engines.upstream_pool import MAX_FAILURES, MIN_SLOW, UpstreamConfig
from agent_server.errors import EngineMisconfigured, EngineTimeout, EngineUnavailable
from terrarium.sockets import listen
from tests.kit.agent_server import CHAT, HELLO, agent_client, agent_server
from tests.kit.openai_script import Answer, ScriptedOpenAI
from tests.kit.patience import PATIENCE
from tests.kit.ports import free_port
from tests.kit.upstream_servers import Kind, upstream_server

KINDS: tuple[Kind, ...] = get_args(Kind)
OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


@asynccontextmanager
async def answering(*answers: bytes | None) -> AsyncIterator[str]:
    """A socket that sends each request the next of `answers` and closes; None is silence."""
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            size = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            await reader.readexactly(int(size or 0))
            answer = left.pop(0) if len(left) > 1 else left[0]
            if answer is None:
                await reader.read()
            else:
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    listener = listen("127.0.0.1", 0)
    async with await asyncio.start_server(serve, sock=listener):
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@asynccontextmanager
async def engine_of(*urls: str, **settings: Any) -> AsyncIterator[OpenAIEngine]:
    """A running engine with these upstreams."""
    engine = OpenAIEngine(UpstreamConfig(urls, None, "m", **{"timeout": 10, **settings}))
    async with engine.lifespan(), asyncio.timeout(PATIENCE):
        yield engine


async def asked(engine: OpenAIEngine) -> str:
    """All words of one answer."""
    chunks = [chunk async for chunk in engine.chat(HELLO, None)]
    return "".join(
        choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"]
    )


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x00\x01\x02 what?\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: banana\r\n\r\n",
        OK + b"data: {not json}\n\n",
        OK + b"data: " + b"x" * (5 * 1024 * 1024),
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\n\r\n",
    ],
)
async def test_garbage_is_an_engine_error_and_no_crash(garbage: bytes) -> None:
    async with answering(garbage) as url, engine_of(url) as engine:
        with pytest.raises(EngineUnavailable):
            await asked(engine)
        assert not engine.is_busy


async def test_silence_is_a_timeout_and_after_some_the_engine_is_left_alone() -> None:
    async with answering(None) as url, engine_of(url, timeout=0.2) as engine:
        for _ in range(MAX_FAILURES):
            with pytest.raises(EngineTimeout):
                await asked(engine)
        with pytest.raises(EngineUnavailable):  # at once: the circuit is open
            await asked(engine)
        assert not engine.is_busy


async def test_an_upstream_that_is_back_is_asked_again() -> None:
    async with ScriptedOpenAI() as script, engine_of(script.url) as engine:
        for _ in range(MAX_FAILURES):
            script.fail(500, "broken")
            with pytest.raises(EngineUnavailable):
                await asked(engine)
        asked_so_far = len(script.requests)
        with pytest.raises(EngineUnavailable):
            await asked(engine)
        assert len(script.requests) == asked_so_far
        while True:  # until its health check has passed
            try:
                assert await asked(engine) == "ok"
                break
            except EngineUnavailable:
                await asyncio.sleep(0.05)


async def test_a_list_of_models_that_no_parser_bears_ends_no_health_checks() -> None:
    nested = b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000
    async with (
        answering(nested, b"") as odd,
        ScriptedOpenAI() as script,
        engine_of(odd, script.url) as engine,
    ):
        while engine.upstreams[0].is_up:  # by later checks  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        assert await asked(engine) == "ok"


@pytest.mark.parametrize("fault", [None, b"", OK, b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"])
async def test_before_the_first_byte_another_upstream_is_asked(fault: bytes | None) -> None:
    async with answering(fault or b"") as bad, ScriptedOpenAI() as script:
        if fault is None:  # the connection is refused
            bad = f"http://127.0.0.1:{free_port()}"
        async with engine_of(bad, script.url) as engine:
            assert [await asked(engine) for _ in range(4)] == ["ok"] * 4


async def test_a_request_at_a_hung_upstream_goes_elsewhere_once_its_health_checks_fail() -> None:
    async with (
        answering(None) as hung,
        ScriptedOpenAI() as script,
        engine_of(hung, script.url, timeout=300) as engine,
    ):
        assert await asyncio.gather(*(asked(engine) for _ in range(4))) == ["ok"] * 4


async def test_an_upstream_that_begins_no_answer_in_time_is_asked_last_for_a_while() -> None:
    async with ScriptedOpenAI() as stuck, ScriptedOpenAI() as script:
        stuck.default = Answer("never", late=True)
        async with engine_of(stuck.url, script.url, timeout=300, first_byte=0.2) as engine:
            assert [await asked(engine) for _ in range(8)] == ["ok"] * 8
            assert len(stuck.requests) == 1  # the health checks that it passes do not bring it back


async def test_an_upstream_that_is_much_slower_than_the_others_is_asked_last_for_a_while() -> None:
    async with ScriptedOpenAI() as slow, ScriptedOpenAI() as script:
        slow.default = Answer("slow", late=True)
        async with engine_of(slow.url, script.url, timeout=300) as engine:
            asking = [asyncio.create_task(asked(engine)) for _ in range(2 * MAX_FAILURES)]
            await slow.arrived(MAX_FAILURES)
            await asyncio.sleep(1.05 * MIN_SLOW)
            slow.release()
            assert sorted(await asyncio.gather(*asking)) == ["ok"] * 3 + ["slow"] * 3
            assert [await asked(engine) for _ in range(8)] == ["ok"] * 8


async def test_after_the_first_byte_no_other_upstream_is_asked() -> None:
    begun = OK + b'data: {"choices": [{"index": 0, "delta": {"content": "a"}}]}\n\n'
    async with (
        answering(begun) as bad,
        ScriptedOpenAI() as script,
        engine_of(bad, script.url) as engine,
    ):
        asking = [await asyncio.gather(asked(engine), return_exceptions=True) for _ in range(2)]
    answers = {each if isinstance(each, str) else type(each) for (each,) in asking}
    assert answers == {"ok", EngineUnavailable}
    assert len(script.requests) == 1


async def test_a_thousand_clients_that_leave_leave_nothing_behind() -> None:
    """Tasks and sockets are counted before and after, and the places of admission are free."""
    process = psutil.Process()
    async with ScriptedOpenAI() as script:
        script.default = Answer("a beginning", hang=True)
        async with (
            agent_server({"upstream": script.url}) as url,
            httpx2.AsyncClient(timeout=PATIENCE) as http,
        ):
            tasks, sockets = len(asyncio.all_tasks()), process.num_fds()
            host, port = url.removeprefix("http://").split(":")
            for _ in range(20):
                await asyncio.gather(*(_leave(host, int(port), bool(n % 2)) for n in range(50)))
            async with asyncio.timeout(PATIENCE):
                while not await _is_idle(http, url):  # noqa: ASYNC110 - over HTTP
                    await asyncio.sleep(0.05)
                # The connections to the script may stay open for a moment, and its own side too.
                while process.num_fds() > sockets + 20 or len(asyncio.all_tasks()) > tasks + 20:
                    gc.collect()
                    await asyncio.sleep(0.05)
            script.default = Answer("ok")
            assert (await http.post(f"{url}{CHAT}", json=HELLO)).status_code == 200


async def _leave(host: str, port: int, late: bool) -> None:
    """Ask, and go: before the first byte, or `late` after it."""
    reader, writer = await asyncio.open_connection(host, port)
    body = b'{"stream": true, "messages": [{"role": "user", "content": "hello"}]}'
    writer.write(
        f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    await writer.drain()
    if late:
        await reader.read(1)
    writer.close()
    await writer.wait_closed()


async def _is_idle(http: httpx2.AsyncClient, url: str) -> bool:
    metrics = (await http.get(f"{url}/metrics")).text
    wanted = ('terrarium_running{model="terra"} 0.0', 'priority="interactive"} 0.0')
    return all(each in metrics for each in wanted)


def test_a_missing_library_is_named_with_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "xllamacpp.py").write_text("raise ImportError('libgomp.so.1: no such file')\n")
    done = subprocess.run(
        [sys.executable, "-m", "agent_server.engines.llama_child"],
        input=b"{}\n",
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
    )
    assert done.returncode == 1
    assert b"libgomp.so.1" in done.stderr
    assert b"apt install libgomp1" in done.stderr


HOSTS = {"127.0.0.1": 200, "localhost:8080": 200, "[::1]": 200, "evil.example": 403, "": 403}


async def test_without_a_key_only_loopback_names_are_answered_and_with_one_all() -> None:
    async with ScriptedOpenAI() as script:
        async with agent_client({"upstream": script.url}) as http:
            for host, status in HOSTS.items():
                headers = {"host": host}
                assert (await http.post(CHAT, json=HELLO, headers=headers)).status_code == status
                assert (await http.get("/v1/models", headers=headers)).status_code == status
        async with agent_client({"upstream": script.url}, {"admin_key": "secret"}) as http:
            headers = {"host": "terra.example", "authorization": "Bearer secret"}
            assert (await http.get("/v1/models", headers=headers)).status_code == 200


@pytest.mark.parametrize("stream", [True, False])
async def test_the_usage_of_all_choices_comes_once_and_counts_the_prompt_once(stream: bool) -> None:
    parts = (
        b'{"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}]}',
        b'{"choices": [{"index": 1, "delta": {"content": "b"}, "finish_reason": "stop"}]}',
        b'{"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}',
        b'{"usage": {"prompt_tokens": 5, "completion_tokens": 3}}',
        b'{"choices": null, "usage": "many"}',
        b"[DONE]",
    )
    async with (
        answering(OK + b"".join(b"data: %s\n\n" % part for part in parts)) as url,
        agent_server({"upstream": url, "upstream_model": "m"}, ready=False) as server,
        httpx2.AsyncClient(base_url=server) as http,
    ):
        body = {**HELLO, "n": 2, "stream": stream, "max_tokens": 400}
        options = {"stream_options": {"include_usage": True}} if stream else {}
        answer = (await http.post(CHAT, json={**body, **options})).text
    assert answer.count("prompt_tokens_details") == 1
    assert '"prompt_tokens":5,"completion_tokens":5,"total_tokens":10' in answer


def session(name: str) -> dict[str, str]:
    return {"x-session-id": name}


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
