"""An upstream that plays a strong model by script.

It is like a hosted one: its card has a window of 131,072 tokens and no size, there is no
`/tokenize`, and its answers report their usage. It obeys: what a `Turn` wants called is called,
with the tools that it is offered, and then it answers in the words of the turn.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from benchmarks.strong.turn import Call, Turn
from tests.kit.openai_wire import call_delta, chat_choice, event
from tests.kit.serving import serving

NAME = "strong"
WINDOW = 131_072  # tokens
CHARACTERS_PER_TOKEN = 4
_CARD = {
    "id": NAME,
    "object": "model",
    "created": 1,
    "owned_by": "script",
    "max_model_len": WINDOW,
}
_LATENCY = 0.05  # seconds to the first token, unless a turn is slow
SLOW = 3.0
"""Seconds to the first token of a slow turn."""

_PIECE = 60  # characters of a streamed piece
_REMEMBERED = 50  # prompts in the cache
_LINE = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] .*", re.MULTILINE)
_FAILED = re.compile(r"error\b|not run\b", re.IGNORECASE)


@dataclass(slots=True)
class Asked:
    """A request of a turn; `at` is its arrival in `time.perf_counter` seconds."""

    body: dict[str, Any]
    at: float

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools that the model is offered."""
        tools: list[dict[str, Any]] = self.body.get("tools") or []
        return tools

    @property
    def serialised(self) -> str:
        """What the model reads, in its order: the tools, then the messages."""
        return json.dumps([self.tools, self.body["messages"]], ensure_ascii=False)

    @property
    def text(self) -> str:
        """The text of all messages."""
        return "\n".join(map(_content, self.body["messages"]))

    @property
    def lines(self) -> int:
        """The number of log lines in it, without those in the results of tools."""
        messages = [each for each in self.body["messages"] if each["role"] == "user"]
        return sum(len(_LINE.findall(_content(each))) for each in messages)

    @property
    def tokens(self) -> int:
        """The tokens of the prompt."""
        return len(self.serialised) // CHARACTERS_PER_TOKEN

    def shared_with(self, other: Asked) -> int:
        """Return the tokens at its beginning that it shares with another request."""
        return common_prefix(self.serialised, other.serialised) // CHARACTERS_PER_TOKEN


@dataclass(slots=True)
class Played:
    """How a turn was played: its requests, the calls that were made, what was `missing` or
    `failed`, and the answer `written` (all of it, also if it was sent in two parts)."""

    turn: Turn
    requests: list[Asked] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    written: str = ""
    moves: int = 0
    is_answered: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """One reply: text, calls (name and JSON arguments), thoughts and the finish reason."""

    text: str = ""
    calls: tuple[tuple[str, str], ...] = ()
    thought: str = ""
    finish: str = ""


class StrongModel:
    """The running upstream. `url` is its base URL; `playing` the turn that is being played."""

    def __init__(self) -> None:
        self.url = ""
        self.playing: Played | None = None
        self.busy = 0
        self.active = time.perf_counter()
        self._cached: list[str] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[StrongModel]:
        """Serve it on a free loopback port."""
        routes = [
            Route("/v1/models", self._models),
            Route("/v1/models/{name:path}", self._model),
            Route("/v1/chat/completions", self._chat, methods=["POST"]),
        ]
        async with serving(Starlette(routes=routes)) as self.url:
            yield self

    def play(self, turn: Turn) -> Played:
        """Play this turn from now on."""
        self.playing = Played(turn)
        return self.playing

    async def _models(self, _request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [_CARD]})

    async def _model(self, _request: Request) -> Response:
        return JSONResponse(_CARD)

    async def _chat(self, request: Request) -> Response:
        body, played = await request.json(), self.playing
        if played is None or not _is_of(played.turn, body):
            # Memory, a test of tools, or a job that is due: nothing that people see.
            return await self._sent(body, Reply("{}" if "response_format" in body else "Nothing."))
        asked = Asked(body, time.perf_counter())
        played.requests.append(asked)
        self.busy += 1
        try:
            await asyncio.sleep(SLOW if played.turn.slow else _LATENCY)
            return await self._sent(body, _reply(played, asked))
        finally:
            self.busy -= 1
            self.active = time.perf_counter()

    async def _sent(self, body: dict[str, Any], reply: Reply) -> Response:
        usage = self._usage(body, reply)
        finish = reply.finish or ("tool_calls" if reply.calls else "stop")
        head = {"id": "strong-1", "created": int(time.time()), "model": NAME}
        if body.get("stream"):
            events = list(_events(head, reply, finish, usage))
            return StreamingResponse(iter(events), media_type="text/event-stream")
        message = {"role": "assistant", "content": reply.text, "tool_calls": _tool_calls(reply)}
        if reply.thought:
            message["reasoning_content"] = reply.thought
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return JSONResponse(
            {**head, "object": "chat.completion", "choices": [choice], "usage": usage}
        )

    def _usage(self, body: dict[str, Any], reply: Reply) -> dict[str, Any]:
        """Return the usage, with the longest beginning shared with an earlier prompt as cached."""
        prompt = Asked(body, 0).serialised
        shared = max((common_prefix(prompt, each) for each in self._cached), default=0)
        self._cached = [*self._cached[1 - _REMEMBERED :], prompt]
        words = reply.text + reply.thought + "".join(map("".join, reply.calls))
        read, written = len(prompt) // CHARACTERS_PER_TOKEN, len(words) // CHARACTERS_PER_TOKEN
        return {
            "prompt_tokens": read,
            "completion_tokens": written,
            "total_tokens": read + written,
            "prompt_tokens_details": {"cached_tokens": shared // CHARACTERS_PER_TOKEN},
        }


def common_prefix(one: str, other: str) -> int:
    """Return the number of characters at the beginning that two texts share."""
    # Slices are compared much faster than characters.
    same, end = 0, min(len(one), len(other)) + 1
    while end - same > 1:
        middle = (same + end) // 2
        if one[same:middle] == other[same:middle]:
            same = middle
        else:
            end = middle
    return same


def _is_of(turn: Turn, body: Mapping[str, Any]) -> bool:
    """Return whether a request asks the question of a turn, and is not one of memory about it, or
    of the job of each minute, which reads the question in the log."""
    messages = [_content(each) for each in body["messages"] if each["role"] == "user"]
    asked = [text.rpartition("</irc_logs>")[2] for text in messages]
    return bool(body.get("tools")) and any(turn.text in text for text in asked)


def _reply(played: Played, asked: Asked) -> Reply:
    """Return the next reply of a turn: its calls one round after the other, then its answer."""
    turn = played.turn
    if not turn.has_errors:
        played.failed += _failures(asked.body["messages"], played.moves)
    while played.moves < len(turn.moves) and asked.body.get("tool_choice") != "none":
        wanted = turn.moves[played.moves]
        played.moves += 1
        calls = [made for call in wanted if (made := _made(call, asked.tools, played))]
        if calls:
            return Reply(turn.preface, tuple(calls), turn.thought)
    return _answer(played, asked)


def _made(call: Call, tools: Sequence[Mapping[str, Any]], played: Played) -> tuple[str, str] | None:
    """Return a call that fits the tools; None, and a note, if there is none for it."""
    if call.verbatim:
        return call.names[0], call.verbatim
    offered = {tool["function"]["name"]: tool["function"] for tool in tools}
    for name in call.names:
        if name in offered:
            known = offered[name]["parameters"].get("properties", {})
            given: dict[str, Any] = {}
            for keys, value in call.arguments:
                key = next((key for key in keys if key in known), "")
                if key:
                    given[key] = value
                elif call.is_strict:
                    played.missing.append(f"{name}({keys[0]})")
            return name, json.dumps(given)
    played.missing.append(call.names[0])
    return None


def _failures(messages: Sequence[Mapping[str, Any]], moves: int) -> Iterator[str]:
    """Yield the results of the last round that are errors."""
    if not moves or messages[-1]["role"] != "tool":
        return
    last = max(place for place, each in enumerate(messages) if each["role"] == "assistant")
    for message in messages[last + 1 :]:
        text = re.sub(r"<[^>]*>", "", _content(message)).strip()
        if _FAILED.match(text):
            yield text[:120]


def _answer(played: Played, asked: Asked) -> Reply:
    """Return the answer, whose placeholders `{line:WORDS}` are replaced by the line of the log in
    the prompt that has these words. One that stops at a limit goes on when it is asked to."""
    turn = played.turn
    text = re.sub(r"\{line:([^}]*)\}", lambda match: _line(asked, match[1]), turn.answer)
    first, _, rest = text.partition(turn.stops_after) if turn.stops_after else (text, "", "")
    if turn.is_silent_at_first and not played.is_answered:
        played.is_answered = True
        return Reply(thought="Let me think about that at length. " * 60, finish="length")
    if not turn.stops_after:
        played.written, played.is_answered = text, True
        return Reply(text, thought=turn.thought)
    if played.written:  # cut before, and asked to go on
        played.written, played.is_answered = text, True
        return Reply(rest)
    played.written = first + turn.stops_after
    return Reply(played.written, finish="length")


def _line(asked: Asked, words: str) -> str:
    lines = (line for line in _LINE.findall(asked.text) if words in line)
    return next(lines, f"(no line with {words!r})")


def _events(
    head: Mapping[str, Any], reply: Reply, finish: str, usage: Mapping[str, Any]
) -> Iterator[str]:
    head = {**head, "object": "chat.completion.chunk"}
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if reply.thought:
        deltas.append({"reasoning_content": reply.thought})
    pieces = range(0, len(reply.text), _PIECE)
    deltas += [{"content": reply.text[start : start + _PIECE]} for start in pieces]
    deltas += [call_delta(index, call) for index, call in enumerate(_tool_calls(reply))]
    for delta in deltas:
        yield event({**head, "choices": [chat_choice(delta)]})
    yield event({**head, "choices": [chat_choice({}, finish)]})
    yield event({**head, "choices": [], "usage": usage})
    yield "data: [DONE]\n\n"


def _tool_calls(reply: Reply) -> list[dict[str, Any]]:
    unique = time.perf_counter_ns()
    return [
        {
            "id": f"call_{unique}_{number}",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }
        for number, (name, arguments) in enumerate(reply.calls)
    ]


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text") or part.get("type", "") for part in content)
