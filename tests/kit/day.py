"""Simulation of a day on a channel: real lines at simulated times, with questions among them.

The model is scripted. For memory it always writes as much as a talkative one does that is asked to
be brief, so the measured cost of memory is an upper bound. Tokens are estimated as four characters
of a request's messages and tools.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import cycle
from pathlib import Path
from typing import Any

from harnesses.core.tendril.turn import TurnRequest
from llm.prompt.log_window import LogWindow, WindowStarts
from storage.chat_log.event import Place
from storage.log import ChatLog
from terrarium.config import Config
from tests.kit.clock import ManualClock
from tests.kit.lines import said
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.small_tendril import SmallTendril

MIDNIGHT = datetime(2026, 5, 1, tzinfo=UTC)
DAY = timedelta(hours=24)
PLACE = Place("libera", "#ubuntu")
ROOM = "libera/#ubuntu"

_WINDOW = 8_192  # tokens
_LINES = 50  # of the log, in a prompt
_ANSWER = 40  # words
_ANSWER_TOKENS = {"summary": 400, "episode": 120, "facts": 300}  # for memory


@dataclass(slots=True)
class Seen:
    """The measurements of a day.

    `prompts` has the largest prompt of each question, `answered` the tokens of all prompts and
    answers, `beside` the tokens read and written by each request of memory, by purpose. `kept` has
    the stored characters and `rows` the rows by table, both once an hour.
    """

    prompts: list[int] = field(default_factory=list)
    answered: int = 0
    beside: dict[str, list[int]] = field(default_factory=dict)
    kept: list[int] = field(default_factory=list)
    rows: list[dict[str, int]] = field(default_factory=list)

    @property
    def share(self) -> float:
        """The tokens of memory as a fraction of the tokens of answers."""
        return sum(map(sum, self.beside.values())) / self.answered

    @property
    def per_question(self) -> float:
        """The tokens that memory reads and writes per question."""
        return sum(map(sum, self.beside.values())) / len(self.prompts)


class SimulatedDay:
    """Spreads `lines` (nick and text) over a day; one in `every` is a question to the bot."""

    def __init__(self, folder: Path, lines: Sequence[tuple[str, str]], every: int) -> None:
        self._path = folder / "small.db"
        self._lines = lines
        self._every = every
        self.clock = ManualClock(MIDNIGHT)
        self.seen = Seen()
        self.questions = 0
        self._starts: WindowStarts = {}
        words = [word for _, text in lines for word in text.split()]
        self._words = cycle(words)

    @asynccontextmanager
    async def lived(self) -> AsyncIterator[SmallTendril]:
        """Simulate the day and yield the tendril, still running, at its end."""
        async with ScriptedOpenAI(max_model_len=_WINDOW) as script:
            script.summed = self._summed
            config = Config({"agent": {"api_url": script.url}}, None, self._path.parent)
            async with SmallTendril(config, self.clock).living() as tendril:
                async with ChatLog.open(tendril.database) as log:
                    await self._live(tendril, log, script)
                yield tendril

    async def _live(self, tendril: SmallTendril, log: ChatLog, script: ScriptedOpenAI) -> None:
        hour = 0
        for number, (nick, text) in enumerate(self._lines):
            await self.clock.set(MIDNIGHT + DAY * number / len(self._lines))
            anchor = await log.append(said(text, place=PLACE, time=self.clock.now(), nick=nick))
            if number % self._every == 0:
                script.say(self._said(_ANSWER))
                await self._ask(tendril, log, nick, text, anchor)
                prompts = list(map(tokens, script.requests))
                self.seen.prompts.append(max(prompts))
                self.seen.answered += sum(prompts) + 2 * _ANSWER
                script.requests.clear()
            if self.clock.now() >= MIDNIGHT + timedelta(hours=hour):
                await self._look(tendril)
                hour += 1
        await tendril.settled()
        await self._look(tendril)

    async def _ask(
        self, tendril: SmallTendril, log: ChatLog, nick: str, text: str, anchor: int
    ) -> None:
        log_window = LogWindow(
            log=log, place=PLACE, anchor=anchor, last=_LINES, speaker=nick, starts=self._starts
        )
        result = await tendril.turn(
            TurnRequest(
                conversation=f"{ROOM}/{nick.lower()}",
                who=nick,
                text=text,
                room=ROOM,
                log_window=log_window,
            )
        )
        assert result.ok
        self.questions += 1
        await tendril.settled()

    async def _look(self, tendril: SmallTendril) -> None:
        """Record the rows and stored characters of the database."""
        rows = {}
        for table in ("turns", "memories", "memory_sources", "memory_gaps", "jobs"):
            row = await tendril.database.fetch_one(f"SELECT count(*) FROM {table}")
            assert row
            rows[table] = int(row[0])
        self.seen.rows.append(rows)
        size = await tendril.database.fetch_one(
            "SELECT sum(length(text)) + (SELECT coalesce(sum(length(messages)), 0) FROM turns)"
            " FROM memories"
        )
        assert size
        self.seen.kept.append(int(size[0] or 0))

    def _said(self, count: int) -> str:
        return " ".join(next(self._words) for _ in range(count))

    def _summed(self, body: dict[str, Any]) -> str:
        """Write as much as a model does that is asked to be brief; for facts, six about the first
        speaker."""
        task = body["messages"][0]["content"]
        purpose = "facts" if "JSON" in task else "summary" if "old summary" in task else "episode"
        spent = tokens(body) + _ANSWER_TOKENS[purpose]
        self.seen.beside.setdefault(purpose, []).append(spent)
        if purpose != "facts":
            return self._said(_ANSWER_TOKENS[purpose] * 2 // 3)
        line = body["messages"][1]["content"].split("\n")[1]
        about = line.split(":")[0].split(" ", 1)[1]
        facts = [
            {"line": 1, "about": about, "key": self._said(2), "value": self._said(20)}
            for _ in range(6)
        ]
        return json.dumps({"facts": facts})


def tokens(body: dict[str, Any]) -> int:
    """Return the estimated tokens of a request."""
    return len(json.dumps([body["messages"], body.get("tools", [])])) // 4
