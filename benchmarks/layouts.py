"""Prompt layouts to compare: Terrarium's append-only one, and the usual sliding window."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from benchmarks.replay import BOT, Asked, Channel
from harnesses.core.tendril.base import Tendril
from harnesses.core.tendril.turn import TurnRequest
from llm.client.client import AgentClient, RequestOptions
from llm.messages.message import Message, render_block, render_line
from llm.prompt.builder import Persona
from llm.prompt.log_window import LogWindow, WindowStarts
from storage.chat_log.event import SPOKEN, Scope
from storage.log import Query
from storage.usage.usage import TokenUsage
from terrarium.config import Config

ROOT = Path(__file__).parents[1]

LINES = 50
_TURNS = 15  # turns of a conversation that the sliding window keeps
_DIGEST = 20  # lines
_ANSWER = 24  # tokens
_PATIENCE = 3_600  # seconds: long enough that a slow machine does not time out
_IRC = ROOT / "harnesses" / "irc" / "persona.md"
_PERSONA = Persona.read(_IRC)
_CRON = Persona.read(ROOT / "harnesses" / "cron" / "persona.md")


@dataclass(slots=True)
class Timed:
    """An answer with its token usage; `first` is the seconds until its first text."""

    began: float = field(default_factory=time.perf_counter)
    first: float | None = None
    text: str = ""
    usage: TokenUsage = field(default_factory=TokenUsage)

    async def on_text(self, piece: str) -> None:
        """Record the time of the first non-empty piece; the callback for streamed text."""
        if piece and self.first is None:
            self.first = time.perf_counter() - self.began

    def ended(self, text: str, usage: TokenUsage) -> Timed:
        """Set the whole answer and its usage; return self."""
        self.text, self.usage = text, usage
        return self


class Layout(Protocol):
    """A way to build the prompt of a question."""

    async def ask(self, channel: Channel, asked: Asked) -> Timed:
        """Answer a question that was asked on a channel."""


class Ours(Tendril):
    """Terrarium's layout: answers like the IRC tendril, on replayed channels."""

    name: ClassVar[str] = "irc"

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.open = asyncio.Event()
        self._starts: WindowStarts = {}

    async def serve(self) -> None:
        """Signal that the tendril is open, and wait until cancelled."""
        self.open.set()
        await asyncio.Event().wait()

    async def ask(self, channel: Channel, asked: Asked, last: int = LINES) -> Timed:
        """Answer a question that was asked on a channel, of which the `last` lines are shown."""
        place, room = channel.place, str(channel)
        log_window = LogWindow(
            log=channel.log,
            place=place,
            anchor=asked.anchor,
            last=last,
            speaker=asked.who,
            starts=self._starts,
        )
        timed = Timed()
        result = await self.turn(
            TurnRequest(
                conversation=f"{room}/{asked.who}",
                who=asked.who,
                text=asked.text,
                room=room,
                log_window=log_window,
                values=_values(channel),
                on_text=timed.on_text,
            )
        )
        assert result.ok, result.text
        return timed.ended(result.text, result.usage)


class SlidingWindow:
    """The layout of most bots: persona, the current last lines, then the turns.

    The lines are different for each question, so only the persona is a common prefix.
    """

    def __init__(self, client: AgentClient) -> None:
        self._client = client
        self._turns: dict[str, deque[list[Message]]] = defaultdict(lambda: deque(maxlen=_TURNS))

    async def ask(self, channel: Channel, asked: Asked) -> Timed:
        """Answer a question that was asked on a channel."""
        conversation = f"{channel}/{asked.who}"
        turns = self._turns[conversation]
        question: Message = {"role": "user", "content": f"{asked.who} asks: {asked.text}"}
        messages = [
            {"role": "system", "content": _PERSONA.render(_values(channel))},
            {"role": "user", "content": await _newest(channel, asked, LINES)},
            *(message for turn in turns for message in turn),
            question,
        ]
        timed = Timed()
        reply = await self._client.chat(
            messages, RequestOptions(conversation), on_text=timed.on_text
        )
        turns.append([question, reply.message()])
        return timed.ended(reply.text, reply.usage)


async def digest(client: AgentClient, channel: Channel, asked: Asked) -> Timed:
    """Ask the same model for a digest of the last lines, as a cron job does between questions."""
    lines = await _newest(channel, asked, _DIGEST)
    messages: list[Message] = [
        {"role": "system", "content": _CRON.render(_values(channel))},
        {"role": "user", "content": f"{lines}Say in one sentence what it was about."},
    ]
    timed = Timed()
    options = RequestOptions("cron/digest", "background")
    reply = await client.chat(messages, options, on_text=timed.on_text)
    return timed.ended(reply.text, reply.usage)


@asynccontextmanager
async def ours(data: Path, url: str) -> AsyncIterator[Ours]:
    """Run a tendril with the IRC persona against the agent server at `url`; yield it when open."""
    agent = {
        "api_url": url,
        "max_tokens": _ANSWER,
        "personas": {Ours.name: str(_IRC)},
        "timeout": _PATIENCE,
    }
    bot = Ours(Config({"agent": agent}, None, data))
    running = asyncio.create_task(bot.run())
    try:
        await bot.open.wait()
        yield bot
    finally:
        running.cancel()
        await asyncio.wait({running})


async def _newest(channel: Channel, asked: Asked, lines: int) -> str:
    """Render the last `lines` messages before the question, with the other events between them."""
    scope = Scope.from_places(channel.place)
    said = Query(scope=scope, before_id=asked.anchor, types=SPOKEN, own=False, limit=lines)
    [found] = await channel.log.for_model(said)
    since = Query(scope=scope, before_id=asked.anchor, after_id=found[0].id - 1, limit=5_000)
    [events] = await channel.log.for_model(since)
    return render_block([render_line(event) for event in events])


def _values(channel: Channel) -> dict[str, str]:
    return {"nick": BOT, "channel": channel.place.channel, "topic": "(none)"}
