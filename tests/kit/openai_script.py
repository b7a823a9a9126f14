"""Scripted server with the OpenAI API over real HTTP, for tests that need exact answers.

    async with ScriptedOpenAI() as script:
        script.say("hello").call("search_log", {"query": "ngircd"})
        ...  # point AGENT_API_URL or MODEL_UPSTREAM at script.url
        await script.arrived(2)
        assert script.requests[1]["messages"][-1]["role"] == "tool"

Each request to /v1/chat/completions or /v1/completions takes the next answer of
the queue, or `default` if the queue is empty. Requests of memory (session NAME/memory) are kept in
`beside` and answered by `summed` instead. A question is read as the kind that `reads` names, by
default not at all. The server asserts nothing itself. A token is a word.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from llm.client.client import EMBEDDER
from storage.search.vectors import DIMENSIONS
from tests.kit.openai_wire import (
    call_delta,
    chat_choice,
    embeddings,
    error_object,
    event,
    text_choice,
    words,
)
from tests.kit.patience import PATIENCE
from tests.kit.readings import embedding_of
from tests.kit.serving import serving


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one request: text and tool calls, or an error status with `text` as message,
    and with `param` and `code`.

    `hang` pauses after `text` until the client disconnects or `release()` is called, `late` before
    it; `cut` ends the stream after `text` without a finish reason. `pieces` are the streamed parts
    of the text, by default one per word. `reasoning` is sent as `reasoning_content`; `stop_reason`
    is vLLM's field with the stop sequence that ended the answer; `logprob` is that of each piece,
    which is sent if it was asked for.
    """

    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    status: int = 200
    code: str | None = None
    headers: Mapping[str, str] | None = None
    hang: bool = False
    late: bool = False
    cut: bool = False
    pieces: tuple[str, ...] | None = None
    reasoning: str = ""
    finish: str | None = None
    stop_reason: str | None = None
    param: str | None = None
    logprob: float = 0.0


class ScriptedOpenAI:
    """Async context manager that runs the server on a free loopback port.

    `url` is its base URL without `/v1`. `requests` and `headers` have the chats in order of
    arrival, without those of memory.
    """

    def __init__(self, *, model: str = "script", max_model_len: int = 4096) -> None:
        self.model = model
        self.max_model_len = max_model_len
        self.models = {model, "terra"}
        self.roots: dict[str, str] = {}
        self.tools = "native"
        self.card: dict[str, Any] = {}
        self.able: dict[str, Any] = {}
        self.cached_tokens = 0
        self.owner = "script"
        self.ready = True
        self.default: Answer | Callable[[dict[str, Any]], Answer | str] = Answer("ok")
        self.requests: list[dict[str, Any]] = []
        self.beside: list[dict[str, Any]] = []
        self.reads: Callable[[str], str] = lambda _: ""
        self.vector: Callable[[Any], Sequence[float]] = lambda _: (0.5, -0.5)
        self.summed: Callable[[dict[str, Any]], Answer | str] = lambda _: "nothing"
        self.headers: list[dict[str, str]] = []
        self.counted = 0
        self.can_count = True
        self.asked_models: list[str] = []
        self.disconnected = asyncio.Event()
        self.url = ""
        self._answers: deque[Answer | Callable[[dict[str, Any]], Answer | str]] = deque()
        self._arrival = asyncio.Condition()
        self._released = asyncio.Event()

    async def __aenter__(self) -> Self:
        routes = [
            Route("/v1/chat/completions", self._chat, methods=["POST"]),
            Route("/v1/completions", self._chat, methods=["POST"]),
            Route("/v1/embeddings", self._embeddings, methods=["POST"]),
            Route("/v1/models", self._models),
            Route("/v1/models/{name:path}", self._one_model),
            Route("/tokenize", self._tokenize, methods=["POST"]),
            Route("/health", self._health),
            Route("/ready", self._health),
        ]
        self._serving = serving(Starlette(routes=routes))
        self.url = await self._serving.__aenter__()
        return self

    async def __aexit__(self, *exception: Any) -> None:
        self.release()
        await self._serving.__aexit__(*exception)

    # Answers to the next requests, in order.

    def say(self, text: str, *, pieces: tuple[str, ...] | None = None) -> Self:
        """Answer the next request with `text`, streamed as `pieces` if they are given."""
        return self.answer(Answer(text, pieces=pieces))

    def call(self, name: str, arguments: Mapping[str, Any] | str) -> Self:
        """Answer the next request with one tool call; a string is sent unchanged, even if it is
        not valid JSON."""
        return self.answer(Answer(calls=((name, _json(arguments)),)))

    def calls(self, *calls: tuple[str, Mapping[str, Any] | str]) -> Self:
        """Answer the next request with several tool calls at once."""
        return self.answer(Answer(calls=tuple((name, _json(value)) for name, value in calls)))

    def fail(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> Self:
        """Answer the next request with an OpenAI error object."""
        return self.answer(Answer(message, status=status, headers=headers))

    def hang(self, text: str = "") -> Self:
        """Send `text`, then pause until the client disconnects or `release()` is called."""
        return self.answer(Answer(text, hang=True))

    def think(self, text: str = "") -> Self:
        """Pause until the client disconnects or `release()` is called, then send `text`."""
        return self.answer(Answer(text, late=True))

    def cut(self, text: str = "") -> Self:
        """Send `text`, then end the stream without a finish reason."""
        return self.answer(Answer(text, cut=True))

    def reply(self, rule: Callable[[dict[str, Any]], Answer | str]) -> Self:
        """Answer the next request with what `rule` returns for its body."""
        self._answers.append(rule)
        return self

    def answer(self, *answers: Answer | Callable[[dict[str, Any]], Answer | str]) -> Self:
        """Answer the next requests with `answers`, or with what they return for the request."""
        self._answers.extend(answers)
        return self

    def release(self) -> None:
        """Continue all paused answers; later ones do not pause either."""
        self._released.set()

    def hold(self) -> Self:
        """Let answers pause again after a `release`."""
        self._released.clear()
        return self

    # Conditions to wait for.

    async def arrived(self, count: int = 1) -> None:
        """Wait until `count` chat requests have arrived in total. Raises TimeoutError."""
        async with asyncio.timeout(PATIENCE), self._arrival:
            await self._arrival.wait_for(lambda: len(self.requests) >= count)

    async def client_gone(self) -> None:
        """Wait until a client disconnects before the end of its answer. Raises TimeoutError."""
        async with asyncio.timeout(PATIENCE):
            await self.disconnected.wait()

    # The endpoints.

    async def _chat(self, request: Request) -> Response:
        body = await request.json()
        if await self._is_of_memory(request, body):
            planned: Answer | str = self.summed(body)
        else:
            self.headers.append(dict(request.headers))
            rule = self._answers.popleft() if self._answers else self.default
            planned = rule(body) if callable(rule) else rule
        answer = Answer(planned) if isinstance(planned, str) else planned
        if answer.status != 200:
            headers = dict(answer.headers or {})
            problem = error_object(answer.text, answer.param, answer.code)
            return JSONResponse(problem, answer.status, headers)
        if body.get("stream"):
            return StreamingResponse(self._events(body, answer), media_type="text/event-stream")
        if answer.hang or answer.late or answer.cut:
            released = asyncio.ensure_future(self._released.wait())
            left = asyncio.ensure_future(request.receive())
            await asyncio.wait({released, left}, return_when=asyncio.FIRST_COMPLETED)
            if left.done():
                self.disconnected.set()
            released.cancel()
            left.cancel()
        return JSONResponse(self._whole(body, answer))

    async def _is_of_memory(self, request: Request, body: dict[str, Any]) -> bool:
        """Keep a request; return True if it is one of memory."""
        if request.headers.get("x-session-id", "").endswith("/memory"):
            self.beside.append(body)
            return True
        async with self._arrival:
            self.requests.append(body)
            self._arrival.notify_all()
        return False

    def _whole(self, body: dict[str, Any], answer: Answer) -> dict[str, Any]:
        pieces = [delta["content"] for delta in _deltas(answer) if delta.get("content")]
        choice: dict[str, Any]
        message: dict[str, Any] = {"role": "assistant", "content": "".join(pieces) or None}
        if "prompt" in body:
            known = {"tokens": pieces, "token_logprobs": [answer.logprob for _ in pieces]}
            text = "".join(pieces)
            choice = {"index": 0, "text": text, "finish_reason": _finish(answer), "logprobs": known}
            usage = self._usage(body, answer)
            return {**self._head("text_completion"), "choices": [choice], "usage": usage}
        if answer.reasoning:
            message["reasoning_content"] = answer.reasoning
        if answer.calls:
            message["tool_calls"] = _tool_calls(answer)
        choice = {"index": 0, "message": message, "finish_reason": _finish(answer)}
        if answer.stop_reason:
            choice["stop_reason"] = answer.stop_reason
        if body.get("logprobs"):
            tokens = [{"token": piece, "logprob": answer.logprob} for piece in pieces]
            choice["logprobs"] = {"content": tokens}
        return {
            **self._head("chat.completion"),
            "choices": _each(body, choice),
            "usage": self._usage(body, answer),
        }

    async def _events(self, body: dict[str, Any], answer: Answer) -> AsyncIterator[str]:
        head = self._head("chat.completion.chunk")
        choice = text_choice if "prompt" in body else chat_choice
        try:
            if answer.late:
                await self._released.wait()
            for delta in _deltas(answer):
                made = choice(delta)
                if body.get("logprobs") and delta.get("content") and "prompt" not in body:
                    token = {"token": delta["content"], "logprob": answer.logprob}
                    made["logprobs"] = {"content": [token]}
                yield event({**head, "choices": _each(body, made)})
                await asyncio.sleep(0)
            if answer.cut:
                return
            if answer.hang:
                await self._released.wait()
        except asyncio.CancelledError:
            self.disconnected.set()
            raise
        last = choice({}, _finish(answer))
        if answer.stop_reason:
            last["stop_reason"] = answer.stop_reason
        yield event({**head, "choices": _each(body, last)})
        if (body.get("stream_options") or {}).get("include_usage"):
            yield event({**head, "choices": [], "usage": self._usage(body, answer)})
        yield "data: [DONE]\n\n"

    async def _embeddings(self, request: Request) -> Response:
        body = await request.json()
        if body.get("model") == EMBEDDER:
            if body.get("input_type") == "query":
                kind = self.reads(body["input"][0])
                made = [embedding_of(kind)] if kind else []
            else:  # lines of the log, if there are vectors of this model's length
                found = map(self.vector, body["input"])
                made = [each for each in found if len(each) == DIMENSIONS]
            if not made:
                return JSONResponse(error_object(f"no model is called {EMBEDDER}"), 404)
            return JSONResponse(embeddings(made, EMBEDDER, 1))
        await self._is_of_memory(request, body)
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        return JSONResponse(embeddings(map(self.vector, texts), self.model, words(texts)))

    async def _models(self, _request: Request) -> Response:
        models = [
            {"id": name, "object": "model", "created": 0, "owned_by": self.owner}
            | {"root": self.roots.get(name, name)}
            for name in [self.model, *sorted(self.models - {self.model})]
        ]
        return JSONResponse({"object": "list", "data": models})

    async def _one_model(self, request: Request) -> Response:
        name = request.path_params["name"]
        self.asked_models.append(name)
        if name not in self.models:
            return JSONResponse(error_object(f"no model is called {name}"), 404)
        card = {"id": name, "object": "model", "root": self.roots.get(name, name), **self.card}
        return JSONResponse({**card, "capabilities": {"tools": self.tools} | self.able})

    async def _tokenize(self, request: Request) -> Response:
        body = await request.json()
        self.counted += 1
        if not self.can_count:
            return JSONResponse(error_object("there is no /tokenize"), 501)
        count = words(body.get("messages", body.get("prompt", "")))
        counted = {"count": count, "max_model_len": self.max_model_len}
        return JSONResponse({**counted, "tokens": list(range(count))})

    async def _health(self, _request: Request) -> Response:
        return JSONResponse({"status": "ok"}, 200 if self.ready else 503)

    def _head(self, kind: str) -> dict[str, Any]:
        number, now = len(self.requests), int(time.time())
        return {"id": f"chatcmpl-{number}", "object": kind, "created": now, "model": self.model}

    def _usage(self, body: dict[str, Any], answer: Answer) -> dict[str, Any]:
        prompt = words(body.get("messages", body.get("prompt", [])))
        output = words(answer.text) + words([name + " " + text for name, text in answer.calls])
        return {
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "total_tokens": prompt + output,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }


def _each(body: Mapping[str, Any], choice: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the same for each of the `n` choices that the request wants."""
    return [{**choice, "index": index} for index in range(body.get("n") or 1)]


def _deltas(answer: Answer) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": None if answer.calls else ""}
    if answer.reasoning:
        yield {"reasoning_content": answer.reasoning}
    for piece in answer.pieces or re.findall(r"\s*\S+\s*$|\s*\S+", answer.text):
        yield {"content": piece}
    for index, call in enumerate(_tool_calls(answer)):
        name, text = call["function"]["name"], call["function"]["arguments"]
        yield call_delta(index, {**call, "function": {"name": name, "arguments": ""}})
        half = len(text) // 2
        yield call_delta(index, {"function": {"arguments": text[:half]}})
        yield call_delta(index, {"function": {"arguments": text[half:]}})


def _tool_calls(answer: Answer) -> list[dict[str, Any]]:
    return [
        {"id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": given}}
        for index, (name, given) in enumerate(answer.calls)
    ]


def _finish(answer: Answer) -> str:
    return answer.finish or ("tool_calls" if answer.calls else "stop")


def _json(arguments: Mapping[str, Any] | str) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)
