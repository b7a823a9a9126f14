"""IRC channel of a complete running Terrarium, with people who chat and ask questions."""

from __future__ import annotations

import asyncio
import os
import re
import time
import zlib
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.answers.questions import NICKS, PlantedLine, ScheduledQuestion
from benchmarks.ubuntu import NoCorpus, lines
from storage.chat_log.event import EventType
from storage.db.database import Database
from storage.queues.reminders import Reminder, Reminders
from storage.runs import reader as run_reader
from storage.runs.reader import RunRecord
from tests.kit.irc_client import IrcClient, irc_client
from tests.kit.patience import PATIENCE
from tests.kit.terrarium import Up, terrarium_up

BOT = "Terra"
ROOM = "#terrarium"
_PASSED_ON = ("MODEL_", "AGENT_")  # prefixes of environment variables passed to Terrarium
_UNHURRIED = {"IRC_PERSON_PER_MINUTE": "1000", "IRC_CHANNEL_PER_MINUTE": "3000"}
_LONGEST_WAIT = 180.0  # seconds for an answer
_COMMAND_WAIT = 15.0  # seconds for the reply to a command before the question
_TYPED = 15.0  # characters a second of a fast typist: anyone faster is taken for a bot
_CHATTER_BEGINS = 3_000  # line of the corpus
_PAUSE = 0.05  # seconds between two lines of chatter
_LOOK = 0.1  # seconds between two polls
# An answer is complete after the end of its run and some seconds of silence:
_QUIET = 0.4  # usually
_QUIET_ALONE = 1.5  # without a run: a command
_QUIET_QUOTING = 2.5  # after a quoted log line: more may be held back by the flood limit
_QUIET_UNADDRESSED = 5.0  # if no line addresses the asker: they may be another answer's
_LOST = 60.0  # seconds after which a run that has not ended, or has said nothing, counts as lost
_STILL = re.compile(
    r"still (?:working on|at) it\b|\S+: still (?:working on|at) it\b", re.IGNORECASE
)
_QUOTED = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d\] ")
_LINE = re.compile(r"^(?:@\S+ )?:(?P<nick>[^!\s]+)\S* (?:PRIVMSG|NOTICE) (?P<to>\S+) :(?P<text>.*)")
_FEW = 30  # newest runs that are searched for the question's
_LONGEST_LINE = 300  # bytes of a line of chatter


@dataclass(frozen=True, slots=True)
class HeardLine:
    """A line of the bot; `at` is its arrival in `time.perf_counter` seconds, `to` its target."""

    at: float
    to: str
    text: str


@dataclass(frozen=True, slots=True)
class IrcAnswer:
    """An answer over IRC, its lines joined by newlines; empty if there was none.

    `first` and `whole` are the seconds to its first and last line, `prompt` the tokens of the
    largest prompt and `prompts` those of all, None if no model was asked.
    """

    text: str
    asked: datetime
    first: float | None = None
    whole: float | None = None
    prompt: int | None = None
    prompts: int | None = None


@dataclass
class PeopleInRoom:
    """The people of the channel, their lines (`said`) and the bot's (`heard`).

    Create one with `opened`.
    """

    up: Up
    people: dict[str, IrcClient]
    database: Database
    room: str = ROOM
    said: list[tuple[str, str]] = field(default_factory=list)
    said_at: dict[str, datetime] = field(default_factory=dict)
    heard: list[HeardLine] = field(default_factory=list)
    _chatter: Iterator[tuple[str, str]] = field(default_factory=lambda: chatter())
    _passed: set[tuple[str, str]] = field(default_factory=set)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    @asynccontextmanager
    async def opened(
        cls, folder: Path, room: str = ROOM, nicks: Sequence[str] = NICKS
    ) -> AsyncIterator[PeopleInRoom]:
        """Run `terrarium up` with its data in `folder`, and have everybody join its channel."""
        settings = {k: v for k, v in os.environ.items() if k.startswith(_PASSED_ON)}
        settings |= _UNHURRIED | {"IRC_CHANNELS": room, "TERRARIUM_LOG_LEVEL": "error"}
        async with AsyncExitStack() as stack:
            up = await stack.enter_async_context(terrarium_up(folder, **settings))
            people = {}
            for nick in nicks:
                people[nick] = await stack.enter_async_context(irc_client(up.irc_port, nick))
                await people[nick].join(room)
            database = await stack.enter_async_context(Database.open(folder / "irc.db"))
            this = cls(up, people, database, room)
            listening = [
                asyncio.create_task(this._listen(person, number == 0))
                for number, person in enumerate(people.values())
            ]
            try:
                yield this
            finally:
                for task in listening:
                    task.cancel()
                await asyncio.gather(*listening, return_exceptions=True)

    async def talk(self, number: int, silent: Collection[str] = ()) -> None:
        """Say the next `number` real lines of chatter, by anyone except `silent`.

        Ends early when the corpus is missing or exhausted.
        """
        for _ in range(number):
            nick, text = next(self._chatter, ("", ""))
            if not nick:
                return
            place = NICKS.index(nick)
            nicks = [each for each in (*NICKS[place:], *NICKS[:place]) if each not in silent]
            await self.say(nicks[0], text)
            await asyncio.sleep(_PAUSE)

    async def say(self, nick: str, text: str) -> None:
        """Say a line and return when it has reached the channel."""
        self.said.append((nick, text))
        self.said_at[nick] = datetime.now(UTC)
        await self.people[nick].say(self.room, text)
        async with asyncio.timeout(PATIENCE):
            # The first person listens to the channel. IRC echoes no one's own lines, so there is
            # nothing to wait for if they speak themselves.
            while (nick, text) not in self._passed and nick != next(iter(self.people)):
                self._news.clear()
                await self._news.wait()
        self._passed.discard((nick, text))

    async def pause_before(self, question: ScheduledQuestion) -> datetime | None:
        """Say everything that comes before a question.

        Returns when the people that the question is about last spoke, None if it is about no one.
        """
        await self.talk(question.chatter // 2, question.silent)
        for line in question.planted:
            await self.say(line.nick, line.text)
        for line in question.item.before:
            await self._prepare(question.asker, line)
        speakers = question.silent & self.said_at.keys()
        await self.talk(
            question.chatter - question.chatter // 2, {*question.silent, question.asker}
        )
        return max((self.said_at[nick] for nick in speakers), default=None)

    async def _prepare(self, asker: str, line: PlantedLine) -> None:
        begin = time.perf_counter()
        await self.say(line.nick or asker, line.text)
        if line.text.startswith("."):
            while not self.answer_lines(asker, begin):
                if time.perf_counter() - begin > _COMMAND_WAIT:
                    break
                await asyncio.sleep(_LOOK)
            await self.type("x" * 40)

    async def type(self, text: str) -> None:
        """Wait as long as a person needs to react to an answer and type `text`."""
        await asyncio.sleep(1.1 + len(text) / _TYPED)

    async def ask(self, nick: str, question: str, among_others: bool = False) -> IrcAnswer:
        """Ask the bot and wait for the last line of its answer, at most _LONGEST_WAIT seconds.

        Pass `among_others` if others are answered at the same time: then only lines that address
        `nick` count as the answer.
        """
        asked, begin = datetime.now(UTC), time.perf_counter()
        await self.say(nick, f".terrarium {question}")
        while not await self._is_complete(nick, begin, asked, among_others):
            if time.perf_counter() - begin > _LONGEST_WAIT:
                break
            await asyncio.sleep(_LOOK)
        answered = self.answer_lines(nick, begin, among_others)
        runs = await self._runs(nick, asked)
        prompts = [step.prompt for run in runs for step in run.steps if step.prompt]
        return IrcAnswer(
            text="\n".join(unaddressed(line.text, nick) for line in answered),
            asked=asked,
            first=answered[0].at - begin if answered else None,
            whole=answered[-1].at - begin if answered else None,
            prompt=max(prompts, default=None),
            prompts=sum(prompts) if prompts else None,
        )

    def answer_lines(self, nick: str, begin: float, among_others: bool = False) -> list[HeardLine]:
        """Return the bot's lines since `begin` that may be an answer to `nick`.

        Excludes progress notes and lines that address others or, with `among_others`, nobody.
        """
        others = tuple(f"{other}:" for other in self.people if other != nick)
        lines = [
            line
            for line in self.heard
            if line.at >= begin
            and line.to in (self.room, nick)
            and not line.text.startswith(others)
            and (not among_others or line.to == nick or line.text.startswith(f"{nick}:"))
            and not _STILL.match(line.text)
        ]
        # The bot sends lines in order and an answer begins with the nick: lines before that are the
        # rest of an earlier answer, held back by the server's flood limit.
        first = next((i for i, line in enumerate(lines) if self._is_addressed(line, nick)), 0)
        return lines[first:]

    @staticmethod
    def _is_addressed(line: HeardLine, nick: str) -> bool:
        return line.to == nick or line.text.startswith(f"{nick}:")

    @property
    def every_line(self) -> list[tuple[str, str]]:
        """Nick and text of all lines, including the bot's."""
        return [*self.said, *((BOT, line.text) for line in self.heard)]

    async def reminders(self, nick: str) -> list[Reminder]:
        """Return all reminders of a nick."""
        return [each for each in await Reminders(self.database).all() if each.owner.nick == nick]

    async def _is_complete(
        self, nick: str, begin: float, asked: datetime, among_others: bool
    ) -> bool:
        answered = self.answer_lines(nick, begin, among_others)
        quiet = time.perf_counter() - (answered[-1].at if answered else begin)
        is_own = any(self._is_addressed(line, nick) for line in answered)
        needed = _QUIET if is_own or not answered else _QUIET_UNADDRESSED
        if answered and _QUOTED.search(answered[-1].text):
            needed = max(needed, _QUIET_QUOTING)
        if quiet < needed:
            return False
        runs = await self._runs(nick, asked)
        if any(run.ended is None for run in runs):
            return bool(answered) and quiet > _LOST
        if not answered:
            return bool(runs) and quiet > _LOST
        return bool(runs) or quiet > _QUIET_ALONE

    async def _runs(self, nick: str, since: datetime) -> list[RunRecord]:
        newest = await run_reader.newest_runs(self.up.data, _FEW)
        own = [run for run in newest if run.tendril == "irc" and run.started >= since]
        own = [run for run in own if run.conversation.lower().endswith(f"/{nick}".lower())]
        found = [await run_reader.read_run(self.up.data, run.id) for run in own]
        return [run for run in found if run]

    async def _listen(self, person: IrcClient, is_first: bool) -> None:
        """Record the bot's private lines to a person; for the first one also the whole channel."""
        while True:
            match = await person.expect(r" (?:PRIVMSG|NOTICE) ", timeout=24 * 3600)
            if not (line := _LINE.match(match.string)):
                continue
            nick, to, text = line["nick"], line["to"], line["text"]
            if nick == BOT and (is_first or to != self.room):
                self.heard.append(HeardLine(time.perf_counter(), to, text))
            elif is_first:
                self._passed.add((nick, text))
            self._news.set()


def unaddressed(text: str, nick: str) -> str:
    """Return a line without the leading nick of its addressee."""
    return re.sub(rf"^{re.escape(nick)}: ", "", text)


def chatter() -> Iterator[tuple[str, str]]:
    """Yield nick and text of real lines of #ubuntu, assigned to NICKS by a hash of the real nick.

    Skips lines that the bot might react to. Prints a message and yields nothing if the corpus is
    missing.
    """
    try:
        real = lines()
    except NoCorpus as error:
        print(f"  no chatter: {error}")
        return
    for kind, nick, text in real[_CHATTER_BEGINS:]:
        one_line = " ".join(text.split())
        fits = one_line and len(one_line.encode()) < _LONGEST_LINE
        is_for_bot = one_line.startswith(".") or "terra" in one_line.lower()
        if kind is EventType.PRIVMSG and fits and not is_for_bot and one_line.isprintable():
            yield NICKS[zlib.crc32(nick.encode()) % len(NICKS)], one_line
