"""The official SDK and each kind of upstream: the same answers, whatever it calls their parts."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, get_args

import pytest
from openai import APIStatusError, AsyncOpenAI, BadRequestError, InternalServerError
from openai.types.chat import ChatCompletionMessageFunctionToolCall
from starlette.responses import HTMLResponse, JSONResponse, Response

from tests.kit.agent_server import agent_server, tool
from tests.kit.openai_script import Answer, ScriptedOpenAI
from tests.kit.openai_wire import error_object
from tests.kit.patience import PATIENCE
from tests.kit.plain_openai import plain_openai
from tests.kit.upstream_servers import (
    MODELS,
    TOOLS_REFUSED,
    WINDOW,
    Kind,
    sent_events,
    upstream_server,
)

pytestmark = pytest.mark.process  # the SDK asks uname for the platform

KINDS: tuple[Kind, ...] = get_args(Kind)
HELLO: Any = [{"role": "user", "content": "hello"}]
LOOKUP: Any = tool("lookup", "word")


@asynccontextmanager
async def sdk(url: str, **model: Any) -> AsyncIterator[AsyncOpenAI]:
    """OpenAI's client of an agent server in front of an upstream."""
    async with (
        agent_server({"upstream": url, "chooses_tools": True, **model}) as server,
        AsyncOpenAI(
            base_url=f"{server}/v1", api_key="any", max_retries=0, timeout=PATIENCE
        ) as client,
    ):
        yield client


async def card(client: AsyncOpenAI, name: str = "terra") -> dict[str, Any]:
    found = await client.models.retrieve(name)
    return dict(found.model_extra or {})


async def said(client: AsyncOpenAI, **more: Any) -> Any:
    """The message of an answer."""
    answer = await client.chat.completions.create(model="terra", messages=HELLO, **more)
    return answer.choices[0].message


@pytest.mark.parametrize("kind", KINDS)
async def test_thoughts_words_calls_usage_and_card_are_alike_of_every_kind(kind: Kind) -> None:
    async with upstream_server(kind) as upstream, sdk(upstream.url) as client:
        answer = await client.chat.completions.create(model="terra", messages=HELLO)
        streamed = client.chat.completions.stream(
            model="terra", messages=HELLO, stream_options={"include_usage": True}
        )
        text, thoughts = "", ""
        async with streamed as stream:
            async for event in stream:
                if event.type != "chunk":
                    continue
                for choice in event.chunk.choices:
                    text += choice.delta.content or ""
                    thoughts += (choice.delta.model_extra or {}).get("reasoning_content") or ""
            whole = await stream.get_final_completion()
        called = await said(client, tools=[LOOKUP])
        upstream.is_loaded = True
        found = await card(client)
    message = answer.choices[0].message
    assert (message.content, message.model_extra) == (kind, {"reasoning_content": "hm"})
    assert (text, thoughts) == (kind, "hm")
    for usage in (answer.usage, whole.usage):
        assert usage is not None
        assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (11, 5, 16)
    (call,) = called.tool_calls
    assert isinstance(call, ChatCompletionMessageFunctionToolCall)
    assert call.id == "call_1"
    assert (call.function.name, call.function.arguments) == ("lookup", '{"word": "ada"}')
    assert called.model_extra == {"reasoning_content": "hm"}
    assert (found["max_model_len"], found["window"]) == (WINDOW, WINDOW)
    assert found["weights"] == MODELS[kind]
    told = {"llama-server": 8_190_735_360, "ollama": 8_200_000_000}  # else by the model's name
    assert found["parameters"] == told.get(kind, 8_000_000_000)
    able, tells_reasoning = found["capabilities"], kind in ("ollama", "openrouter", "litellm")
    assert (able["tools"], able["counts_tokens"]) == ("native", not tells_reasoning)
    assert able["reasoning"] == (True if tells_reasoning else None)


@pytest.mark.parametrize(
    ("parameters", "window"), [("", 4096), ('stop "a"\nnum_ctx                16384', 16384)]
)
async def test_the_window_of_ollama_is_known_once_loaded(parameters: str, window: int) -> None:
    async with upstream_server("ollama") as upstream:
        upstream.parameters = parameters
        async with sdk(upstream.url) as client:
            assert (await card(client))["max_model_len"] == window
            await said(client)
            assert (await card(client))["max_model_len"] == WINDOW


async def test_another_model_of_the_upstream_has_a_card_of_its_own() -> None:
    async with upstream_server("openrouter") as upstream, sdk(upstream.url) as client:
        found = await card(client, f"terra:{MODELS['openrouter']}")
        assert (found["max_model_len"], found["capabilities"]["vision"]) == (WINDOW, False)
        assert (await card(client, "terra:unlisted"))["max_model_len"] == 32768


@pytest.mark.parametrize(
    ("said_of_it", "window", "tools", "vision"),
    [
        ({}, 32768, "native", True),
        ({"context_window": 131072}, 131072, "native", True),
        ({"max_context_length": 65536,
          "capabilities": {"function_calling": False, "vision": False}},
         65536, "constrained", False),
        ({"max_model_len": "many", "context_length": -1}, 32768, "native", True),
        ({"context_length": 2048, "architecture": {"input_modalities": ["text"]},
          "supported_parameters": ["tools", "reasoning"]}, 2048, "native", False),
    ],
)  # fmt: skip
async def test_what_hosted_services_say_counts_unless_the_table_says_it(
    said_of_it: dict[str, Any], window: int, tools: str, vision: bool
) -> None:
    message = {"role": "assistant", "content": "Hi."}
    async with (
        plain_openai(message, card={"id": "m", **said_of_it}) as upstream,
        sdk(upstream, reasoning=False) as client,
    ):
        found = await card(client)
    assert found["max_model_len"] == window
    assert found["capabilities"] == {
        "tools": tools, "vision": vision, "reasoning": False, "embeddings": None,
        "counts_tokens": False, "chooses_tools": True,
    }  # fmt: skip


LLAMA_CPP = {"n_prompt_tokens": 9000, "n_ctx": 8192, "type": "exceed_context_size_error"}
MISTRAL = "Prompt contains 9000 tokens, too large for model with 8192 maximum context length"
CLAUDE = "input length and `max_tokens` exceed context limit: 8000 + 1000 > 8192, decrease input"
TOO_LONG: list[tuple[dict[str, Any], int | None]] = [
    ({"error": {"message": "the request exceeds the available context size", **LLAMA_CPP}}, 8192),
    ({"object": "error", "type": "BadRequestError", "param": None, "code": 400,
      "message": "This model's maximum context length is 8192 tokens. However, you requested "
      "9000 tokens (8000 in the messages, 1000 in the completion)."}, 8192),
    (error_object("You passed 9000 input tokens and requested 0 output tokens. However, the "
                  "model's context length is only 8192 tokens"), 8192),
    (error_object("the input length exceeds the context length"), None),
    (error_object("prompt too long; exceeded max context length by 808 tokens"), None),
    ({"error": {"message": "Your input exceeds the context window of this model.",
                "param": "messages", "code": "context_length_exceeded"}}, None),
    ({"error": {"code": 400, "message": "This endpoint's maximum context length is 8192 tokens. "
                "However, you requested about 9000 tokens."}}, 8192),
    ({"error": {"message": "Provider returned error", "code": 400,
                "metadata": {"raw": json.dumps({"message": MISTRAL})}}}, 8192),
    ({"type": "error", "error": {"type": "invalid_request_error",
      "message": "prompt is too long: 9000 tokens > 8192 maximum"}}, 8192),
    ({"type": "error", "error": {"type": "invalid_request_error", "message": CLAUDE}}, 8192),
    ({"error": "The input (9000 tokens) is longer than the context length (8192 tokens)."}, 8192),
]  # fmt: skip


async def test_a_prompt_that_is_too_long_is_told_alike_and_corrects_the_card() -> None:
    async with upstream_server("vllm") as upstream:
        for body, window in TOO_LONG:
            async with sdk(upstream.url) as client:
                is_of_sglang = isinstance(body.get("error"), str)
                upstream.replies.append(JSONResponse(body, 500 if is_of_sglang else 400))
                with pytest.raises(BadRequestError) as failure:
                    await said(client)
                assert failure.value.code == "context_length_exceeded"
                assert (await card(client))["max_model_len"] == (window or WINDOW), body
                assert (await said(client)).content == "vllm"


async def test_a_window_that_is_refused_is_smaller_than_the_configured_one() -> None:
    async with upstream_server("vllm") as upstream, sdk(upstream.url, context=16384) as client:
        for limit, window in (("30000", 16384), ("8,000", 8000)):
            text = f"This model's maximum context length is {limit} tokens."
            upstream.replies.append(JSONResponse(error_object(text), 400))
            with pytest.raises(BadRequestError):
                await said(client)
            assert (await card(client))["max_model_len"] == window


@pytest.mark.parametrize("kind", TOOLS_REFUSED)
async def test_tools_that_are_refused_are_given_in_words_from_then_on(kind: Kind) -> None:
    async with upstream_server(kind) as upstream, sdk(upstream.url) as client:
        upstream.takes_tools = False
        upstream.text = '{"name": "lookup", "arguments": {"word": "ada"}}'
        for _ in range(2):
            (call,) = (await said(client, tools=[LOOKUP])).tool_calls
            assert (call.function.name, call.function.arguments) == ("lookup", '{"word": "ada"}')
        assert sum("tools" in body for body in upstream.chats) == 1
        assert (await card(client))["capabilities"]["tools"] == "constrained"
        upstream.text = "Hello."
        assert (await said(client)).content == "Hello."


async def test_an_upstream_gets_no_limit_that_nobody_asked_for() -> None:
    async with upstream_server("vllm") as upstream:
        async with sdk(upstream.url) as client:
            await said(client)
            await said(client, max_completion_tokens=7)
        async with sdk(upstream.url, max_tokens=50) as client:
            await said(client)
    limits = [body.get("max_tokens") for body in upstream.chats]
    assert limits == [None, 7, 50]


async def test_parameters_that_a_model_refuses_are_renamed_or_left_out_from_then_on() -> None:
    async with ScriptedOpenAI() as script, sdk(script.url) as client:
        script.fail(
            400,
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
            "'max_completion_tokens' instead.",
        )
        script.answer(
            Answer(
                "temperature does not support 0.3",
                status=400,
                param="temperature",
                code="unsupported_value",
            )
        )
        for _ in range(2):
            assert (await said(client, max_tokens=7, temperature=0.3)).content == "ok"
        asked = [
            [key for key in ("max_tokens", "max_completion_tokens", "temperature") if key in body]
            for body in script.requests
        ]
        assert asked == [
            ["max_tokens", "temperature"],
            ["max_completion_tokens", "temperature"],
            ["max_completion_tokens"],
            ["max_completion_tokens"],
        ]
        assert script.requests[-1]["max_completion_tokens"] == 7


GOOD_CHUNK = {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": None}]}
ENDED = {"choices": [{"index": None, "delta": {"content": "Hi"}, "finish_reason": "stop"}]}
BAD: list[Response] = [
    HTMLResponse("<!doctype html><title>Bad gateway</title>", 502),
    HTMLResponse("<html><body>Log in</body></html>"),
    HTMLResponse("<html><body>Not here</body></html>", 404),
    JSONResponse({"error": {"message": "overloaded", "type": "server_error"}}),
    JSONResponse({"detail": "nothing"}),
    JSONResponse({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 0}}),
    JSONResponse([]),
    sent_events({"choices": []}),
    sent_events({"choices": None, "usage": {"prompt_tokens": 5, "completion_tokens": 0}}),
    sent_events({"choices": [{"delta": "text"}]}),
    sent_events({"choices": [{"delta": {"content": 5}}]}),
    sent_events({"choices": [{"delta": {}, "index": "first"}]}),
    sent_events({"choices": [{"delta": {}, "logprobs": []}]}),
    sent_events({"choices": [{"delta": {"tool_calls": "none"}}]}),
    sent_events({"choices": [{"delta": {"tool_calls": [{"index": 10**9, "function": {}}]}}]}),
    sent_events({"choices": [{"delta": {"tool_calls": [{"index": -1, "function": {}}]}}]}),
    sent_events({"choices": [{"delta": {"tool_calls": [{"function": {"arguments": {}}}]}}]}),
    Response("data: [DONE]\n\n", media_type="text/event-stream"),
    Response("", media_type="text/event-stream"),
]


@pytest.mark.parametrize("stream", [True, False])
async def test_nonsense_is_a_clear_error_and_the_next_answer_is_good(stream: bool) -> None:
    async with upstream_server("vllm") as upstream, sdk(upstream.url) as client:
        for bad in BAD:
            upstream.replies.append(bad)
            with pytest.raises(InternalServerError) as failure:
                await said(client, stream=stream)
            assert failure.value.status_code == 503
            assert failure.value.code in ("engine_unavailable", "engine_misconfigured")
            assert "<" not in failure.value.message
            assert (await said(client)).content == "vllm"


@pytest.mark.parametrize(
    ("reply", "text", "thoughts"),
    [
        (Response(sent_events(ENDED).body, media_type="application/json"), "Hi", None),
        (HTMLResponse('\n\n{"choices": [{"message": {"role": "assistant", "content": "Hi"}}]}'),
         "Hi", None),
        (JSONResponse({"choices": [{"message": {"content": None}, "finish_reason": "stop"}],
                       "usage": "unknown"}), "", None),
        (sent_events({"choices": [{"delta": None, "finish_reason": "stop"}], "usage": None}),
         "", None),
        (sent_events({"choices": [{"index": 0, "finish_reason": "stop", "delta": {"content": [
            {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
            {"type": "text", "text": "Hi"},
        ]}}]}), "Hi", "hm"),
    ],
)  # fmt: skip
async def test_what_an_answer_lacks_or_how_it_is_labelled_does_not_matter(
    reply: Response, text: str, thoughts: str | None
) -> None:
    async with upstream_server("vllm") as upstream, sdk(upstream.url) as client:
        upstream.replies.append(reply)
        answer = await client.chat.completions.create(model="terra", messages=HELLO)
    message = answer.choices[0].message
    assert (message.content, answer.choices[0].finish_reason) == (text, "stop")
    assert (message.model_extra or {}).get("reasoning_content") == thoughts
    assert answer.usage is None


@pytest.mark.parametrize("event", [{"error": {"message": "gone", "code": 502}}, GOOD_CHUNK])
async def test_a_stream_that_ends_badly_is_an_error_after_its_words(event: dict[str, Any]) -> None:
    async with upstream_server("vllm") as upstream, sdk(upstream.url) as client:
        upstream.replies.append(sent_events(GOOD_CHUNK, event, end=""))
        stream = await client.chat.completions.create(model="terra", messages=HELLO, stream=True)
        text = ""
        with pytest.raises(Exception, match="engine"):  # noqa: PT012 - it is the loop that raises
            async for chunk in stream:
                text += chunk.choices[0].delta.content or ""
        assert text.startswith("a")
        assert (await said(client)).content == "vllm"


async def test_an_upstreams_own_refusal_keeps_its_words_and_its_code() -> None:
    async with upstream_server("vllm") as upstream, sdk(upstream.url) as client:
        problem = {"message": "no such grammar", "param": "response_format", "code": "bad_grammar"}
        upstream.replies.append(JSONResponse({"error": problem}, 422))
        with pytest.raises(APIStatusError) as failure:
            await said(client)
        assert failure.value.status_code == 400
        assert (failure.value.code, failure.value.param) == ("bad_grammar", "response_format")
