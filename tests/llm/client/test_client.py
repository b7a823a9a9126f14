"""The client and a real server that answers, stumbles, talks nonsense, or says nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from llm.client.client import AgentClient, CountAnswer, RequestOptions
from llm.client.settings import AgentSettings
from llm.messages.errors import (
    Busy,
    ContextTooLong,
    KeyRefused,
    ModelError,
    RequestRejected,
    TimedOut,
    Unreachable,
)
from llm.messages.message import Message, ModelReply, ToolCall
from storage.usage.usage import TokenUsage
from tests.kit.openai_script import Answer, ScriptedOpenAI
from tests.kit.plain_openai import plain_openai
from tests.kit.ports import free_port
from tests.kit.serving import serving

ASKED: list[Message] = [{"role": "user", "content": "hello there", "name": "ada"}]
CALL = RequestOptions("irc/#terrarium")
DONE, STREAM = "data: [DONE]\n\n", "text/event-stream"


def settings(url: str, **values: Any) -> AgentSettings:
    """The table `[agent]` for a server at `url`."""
    return AgentSettings(api_url=url, **values)


async def chat(url: str, shown: list[str] | None = None, **values: Any) -> ModelReply:
    """One question; the pieces for people go to `shown`."""

    async def show(piece: str) -> None:
        assert shown is not None
        shown.append(piece)

    async with AgentClient.open(settings(url, **values)) as client:
        return await client.chat(ASKED, CALL, on_text=None if shown is None else show)


async def test_a_streamed_answer_is_gathered_with_its_usage() -> None:
    async with ScriptedOpenAI() as script:
        script.cached_tokens = 1
        script.say("Hello to you.")
        shown: list[str] = []
        reply = await chat(script.url, shown, model="big", temperature=0.5, max_tokens=9)
        assert reply == ModelReply("Hello to you.", usage=TokenUsage(2, 3, 1), finish_reason="stop")
        assert "".join(shown) == "Hello to you."
        assert len(shown) == 3
        [request] = script.requests
        assert request == {
            "model": "big",
            "messages": [{"role": "user", "content": "hello there"}],
            "temperature": 0.5,
            "max_tokens": 9,
            "stream": True,
            "stream_options": {"include_usage": True},
        }


async def test_an_answer_that_comes_whole_is_an_answer_too() -> None:
    parts = [
        {"id": f"call_{name}", "type": "function", "function": {"name": name, "arguments": "{}"}}
        for name in ("a", "b")
    ]
    message = {
        "role": "assistant",
        "content": "Well.",
        "reasoning_content": "hm",
        "tool_calls": parts,
    }
    async with plain_openai(message) as url:
        reply = await chat(url)
    assert (reply.text, reply.thought, reply.usage) == ("Well.", "hm", TokenUsage(5, 2))
    assert reply.finish_reason == "tool_calls"
    assert [call.name for call in reply.calls] == ["a", "b"]


async def test_a_request_says_whose_it_is() -> None:
    async with ScriptedOpenAI() as script:
        config = settings(script.url + "/v1", api_key="sesame")
        async with AgentClient.open(config) as client:
            options = RequestOptions("irc/net/#kaffee-müller", "background")
            await client.chat(ASKED, options)
        [headers] = script.headers
        assert headers["authorization"] == "Bearer sesame"
        assert headers["x-session-id"] == r"irc/net/#kaffee-m\xfcller"
        assert headers["x-priority"] == "background"
        assert headers["x-request-id"] == options.id


async def test_thoughts_are_kept_apart_and_never_shown() -> None:
    async with ScriptedOpenAI() as script:
        script.answer(Answer(pieces=("Yes", ", <think>."), reasoning="Let me see. "))
        shown: list[str] = []
        reply = await chat(script.url, shown)
    assert (reply.text, reply.thought) == ("Yes, <think>.", "Let me see.")
    assert "".join(shown) == "Yes, <think>."


async def test_tool_calls_are_put_together_from_their_pieces() -> None:
    async with ScriptedOpenAI() as script:
        script.calls(("search", {"query": "a <b>"}), ("who", "{oops"))
        reply = await chat(script.url)
    assert reply.calls == (
        ToolCall("call_0", "search", '{"query": "a <b>"}'),
        ToolCall("call_1", "who", "{oops"),
    )
    message = reply.message()
    assert message["content"] is None
    assert [call["function"]["arguments"] for call in message["tool_calls"]] == [
        '{"query": "a <b>"}',
        "{}",  # servers refuse a prompt whose calls are not JSON
    ]


@pytest.mark.parametrize(
    ("status", "headers", "error"),
    [
        (429, {"retry-after": "60"}, Busy),
        *((status, {}, RequestRejected) for status in (400, 404, 422)),
        *((status, {}, TimedOut) for status in (408, 504)),
    ],
)
async def test_an_error_that_asking_again_does_not_mend_is_raised_at_once(
    status: int, headers: dict[str, str], error: type[ModelError]
) -> None:
    async with ScriptedOpenAI() as script:
        script.fail(status, "no", headers)
        with pytest.raises(error, match="no"):
            await chat(script.url)
        assert len(script.requests) == 1


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_is_trouble_for_the_owner_until_it_is_taken(status: int) -> None:
    async with ScriptedOpenAI() as script:
        script.fail(status, "who are you").say("now")
        async with AgentClient.open(settings(script.url)) as client:
            with pytest.raises(KeyRefused, match="keys create NAME"):
                await client.chat(ASKED, CALL)
            assert script.url in client.trouble
            assert "AGENT_API_KEY" in client.trouble
            await client.chat(ASKED, CALL)
            assert client.trouble == ""


async def test_a_full_server_is_asked_again_when_it_says() -> None:
    async with ScriptedOpenAI() as script:
        script.fail(429, "full", {"retry-after": "1"}).say("now")
        before = time.monotonic()
        assert (await chat(script.url)).text == "now"
        assert time.monotonic() - before >= 1


@pytest.mark.parametrize("status", [500, 502, 503])
async def test_a_server_that_stumbles_is_asked_again(status: int) -> None:
    async with ScriptedOpenAI() as script:
        script.fail(status, "no model").fail(status, "no model").say("back")
        assert (await chat(script.url)).text == "back"


async def test_a_server_that_drops_connections_answers_when_it_is_back() -> None:
    body = (piece("Here again.") + DONE).encode()
    head = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/event-stream\r\n\r\n"
    asked = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        if len(asked) > 2:
            writer.write(head + body)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert (await chat(f"http://127.0.0.1:{port}")).text == "Here again."
    assert len(asked) == 3


async def test_a_server_that_stays_away_is_given_up() -> None:
    before = time.monotonic()
    with pytest.raises(Unreachable):
        await chat(f"http://127.0.0.1:{free_port()}")
    assert time.monotonic() - before > 4


async def test_a_broken_answer_is_asked_for_again_while_nobody_has_read_of_it() -> None:
    async with ScriptedOpenAI() as script:
        script.cut("Half of an").say("A whole answer.")
        assert (await chat(script.url)).text == "A whole answer."
        shown: list[str] = []
        script.cut("").say("Whole.")
        assert (await chat(script.url, shown)) == ModelReply(
            "Whole.", usage=TokenUsage(2, 1), finish_reason="stop"
        )
        assert "".join(shown) == "Whole."


async def test_nothing_is_asked_again_once_a_piece_was_shown() -> None:
    async with ScriptedOpenAI() as script:
        script.cut("Half of an").say("A whole answer.")
        shown: list[str] = []
        with pytest.raises(Unreachable):
            await chat(script.url, shown)
        assert "".join(shown) == "Half of an"
        assert len(script.requests) == 1


async def test_a_silent_server_is_given_up_and_told_so() -> None:
    async with ScriptedOpenAI() as script:
        script.hang("Well")
        with pytest.raises(TimedOut):
            await chat(script.url, timeout=0.5)
        await script.client_gone()


async def test_one_who_leaves_leaves_no_task_and_no_connection() -> None:
    async with ScriptedOpenAI() as script, AgentClient.open(settings(script.url)) as client:
        script.hang("Well")
        asking = asyncio.create_task(client.chat(ASKED, CALL))
        await script.arrived()
        before = asyncio.all_tasks() - {asking}
        asking.cancel()
        with suppress(asyncio.CancelledError):
            await asking
        await script.client_gone()
        assert asyncio.all_tasks() <= before
        assert (await client.chat(ASKED, CALL)).text == "ok"


def canned(
    body: Iterable[str],
    status: int = 200,
    path: str = "/v1/chat/completions",
    media_type: str = STREAM,
) -> tuple[Starlette, list[int]]:
    """A server that always says the same, and what it has counted."""
    asked: list[int] = []
    content = "".join(body).encode()

    async def answer(_request: Request) -> Response:
        asked.append(1)
        return Response(content, status, media_type=media_type)

    return Starlette(routes=[Route(path, answer, methods=["POST"])]), asked


def piece(text: str) -> str:
    return f'data: {{"choices": [{{"index": 0, "delta": {{"content": "{text}"}}}}]}}\n\n'


TOO_LONG = '{"message": "5000 > 4096", "code": "context_length_exceeded"}'


@pytest.mark.parametrize(
    ("body", "status", "media_type", "error", "words"),
    [
        ("data: <html>not JSON</html>\n\n" + DONE, 200, STREAM, RequestRejected, "chunk"),
        ('data: {"choices": 7}\n\n' + DONE, 200, STREAM, RequestRejected, "chunk"),
        ("data: \xff\xfe\n\n" + DONE, 200, STREAM, RequestRejected, "chunk"),
        ("<html>login</html>", 200, "text/html", RequestRejected, "OpenAI API"),
        (f'data: {{"error": {TOO_LONG}}}\n\n', 200, STREAM, ContextTooLong, "5000 > 4096"),
        (f'{{"error": {TOO_LONG}}}', 400, "application/json", ContextTooLong, "5000 > 4096"),
    ],
)
async def test_what_is_no_answer_is_refused_at_once(
    body: str, status: int, media_type: str, error: type[ModelError], words: str
) -> None:
    app, asked = canned(body, status, media_type=media_type)
    async with serving(app) as url:
        with pytest.raises(error, match=words):
            await chat(url)
    assert len(asked) == 1


async def test_line_ends_that_only_unicode_knows_do_not_end_an_event() -> None:
    odd = "a\u2028b\u2029c\x85d"
    app, _ = canned([": keep-alive\r\n\r\n", piece(odd).replace("\n", "\r\n"), "event: x\n", DONE])
    async with serving(app) as url:
        assert (await chat(url)).text == odd


async def test_an_error_inside_the_stream_is_an_error() -> None:
    broken = 'data: {"error": {"message": "engine died", "code": null}}\n\n'
    app, asked = canned([piece("Well"), broken])
    async with serving(app) as url:
        with pytest.raises(Unreachable, match="engine died"):
            await chat(url, [])
    assert len(asked) == 1


async def test_an_estimate_of_tokens_follows_the_usage_that_the_server_reports() -> None:
    asked: list[Message] = [{"role": "user", "content": "hello there " * 200}]
    async with ScriptedOpenAI() as script, AgentClient.open(settings(script.url)) as client:
        assert 800 < client.estimate(asked, []) < 1_000  # three characters a token
        await client.chat(asked, CALL)
        assert 400 <= client.estimate(asked, []) < 430
        assert 200 <= client.estimate([{"role": "user", "content": "x" * 1_200}], []) < 250
        assert client.estimate(asked, [], "another") > 800


async def test_no_limit_is_sent_unless_there_is_one() -> None:
    async with ScriptedOpenAI() as script, AgentClient.open(settings(script.url)) as client:
        await client.chat(ASKED, CALL)
        await client.chat(ASKED, replace(CALL, max_tokens=7))
        client.settings = settings(script.url, max_tokens=9)
        await client.chat(ASKED, CALL)
        await client.chat(ASKED, replace(CALL, max_tokens=0))
        limits = [request.get("max_tokens") for request in script.requests]
    assert limits == [None, 7, 9, None]


TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


async def test_a_server_that_refuses_tools_answers_without_them_and_is_offered_them_again() -> None:
    async with ScriptedOpenAI() as script, AgentClient.open(settings(script.url)) as client:
        script.fail(400, "this model does not support tools").say("Without.").say("With.")
        assert (await client.chat(ASKED, CALL, tools=[TOOL])).text == "Without."
        assert (await client.chat(ASKED, CALL, tools=[TOOL])).text == "With."
        assert ["tools" in request for request in script.requests] == [True, False, True]


async def test_a_reply_says_how_it_ended_and_a_cut_one_keeps_its_last_blank() -> None:
    async with ScriptedOpenAI() as script:
        script.answer(Answer("It begins with ", finish="length"))
        reply = await chat(script.url)
        assert (reply.text, reply.finish_reason) == ("It begins with ", "length")
        assert reply.is_cut
        script.answer(Answer(pieces=("so on " * 9_000,) * 2))
        reply = await chat(script.url)
        assert (reply.finish_reason, reply.is_cut, len(reply.text)) == ("overlong", True, 100_000)
        script.answer(Answer("Well.", reasoning="so on " * 20_000))  # thoughts do not count
        reply = await chat(script.url)
    assert (reply.text, reply.finish_reason) == ("Well.", "stop")


@pytest.mark.parametrize("choices", ["[]", "null"])
async def test_an_answer_without_choices_is_empty(choices: str) -> None:
    app, _ = canned([f'data: {{"choices": {choices}}}\n\n', DONE])
    async with serving(app) as url:
        assert (await chat(url)).text == ""


async def test_a_server_too_busy_to_count_is_asked_again() -> None:
    answers = [429, 503, 200, 200]

    async def tokenize(_request: Request) -> Response:
        status = answers.pop(0)
        body: dict[str, Any] = {"error": {"message": "busy"}}
        headers = {"retry-after": "0"}
        if status == 200:
            body = {"count": 7 if answers else "many", "max_model_len": 8}
        return JSONResponse(body, status, headers)

    app = Starlette(routes=[Route("/tokenize", tokenize, methods=["POST"])])
    async with serving(app) as url, AgentClient.open(settings(url)) as client:
        assert await client.count(ASKED, []) == CountAnswer(count=7, max_model_len=8)
        with pytest.raises(RequestRejected):  # that makes no sense
            await client.count(ASKED, [])


async def test_the_filters_that_acted_are_named() -> None:
    async with ScriptedOpenAI() as script, AgentClient.open(settings(script.url)) as client:
        for filters in (("prompt echo: 15 characters",), ()):
            script.say("<notes>It is so.</notes>")
            options = replace(CALL, filters_output=bool(filters))
            assert (await client.chat(ASKED, options)).filters == filters
