"""The stage of the day: a complete Terrarium on a real IRC server, with people at every door."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shutil
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import httpx2

from benchmarks.strong.story import GREENHOUSE, NETWORK, PEOPLE, ROOM, past, spoken, today
from benchmarks.strong.turn import Turn
from benchmarks.strong.turns import TURNS
from benchmarks.strong.upstream import Played, StrongModel
from storage.chat_log.event import Event, EventType
from storage.db.database import Database
from storage.log import ChatLog
from tests.kit.command import terrarium
from tests.kit.irc_client import IrcClient, irc_client
from tests.kit.ircd import embedded_ircd, inspircd
from tests.kit.patience import PATIENCE
from tests.kit.ports import free_port
from tests.kit.terrarium import Up, terrarium_up

ZONE = "Europe/Vienna"
BOT = "Terra"
_EARS = "ears"
DIGESTS, DAY, LATE = "#digests", "#day", "#late"
LATE_LINES = 400
_TYPED = 15.0  # characters a second: anyone faster is taken for a bot
_REACTION = 1.1  # seconds that a person needs to react to an answer
_QUIET = 0.8  # seconds of silence after which an answer is whole
_QUIET_UNASKED = 3.0  # the same while the model has not been asked
_LONGEST = 90.0  # seconds for a turn; a digest is due once a minute
_END = 20  # characters at the end of an answer that show that it is whole
_LOOK = 0.05
_LINE = re.compile(r"^(?:@\S+ )?:(?P<nick>[^!\s]+)\S* (?:PRIVMSG|NOTICE) (?P<to>\S+) :(?P<text>.*)")
_LINK = re.compile(r"https?://\S+/paste/\S+")
_DOT = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJg"
    "gg=="
)
_CONFIG = """\
[agent]
timezone = "{zone}"

[irc.channel."{greenhouse}"]
proactive = "on"

[cron.jobs.digest]
schedule = "* * * * *"
prompt = "{prompt}"
log = "{network}/{room}"
hours = 48
deliver = "{network}/{digests}"
"""


@dataclass(frozen=True, slots=True)
class Heard:
    """A line of the bot: when (`time.perf_counter` seconds), to whom, and the text."""

    at: float
    to: str
    text: str


@dataclass
class Stage:
    """A running Terrarium, its people, and what they hear of the bot. Create one with `opened`."""

    up: Up
    model: StrongModel
    people: dict[str, IrcClient]
    heard: list[Heard] = field(default_factory=list)
    _answered: dict[str, float] = field(default_factory=dict)
    _passed: set[tuple[str, str]] = field(default_factory=set)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    @asynccontextmanager
    async def opened(cls, folder: Path, nicks: Sequence[str]) -> AsyncIterator[Stage]:
        """Run everything with its data in `folder`, and have everybody join the channels."""
        await _write_past(folder)
        [digest] = [turn for turn in TURNS if turn.door == "cron"]
        names = {"network": NETWORK, "room": ROOM, "greenhouse": GREENHOUSE, "digests": DIGESTS}
        config = _CONFIG.format(zone=ZONE, prompt=digest.text, **names)
        (folder / "terrarium.toml").write_text(config, encoding="utf-8")
        rooms = (ROOM, GREENHOUSE, DIGESTS, DAY, LATE)
        real = inspircd if shutil.which("inspircd", path="/usr/sbin:/usr/bin") else embedded_ircd
        async with AsyncExitStack() as stack:
            model = await stack.enter_async_context(StrongModel().running())
            ircd = await stack.enter_async_context(real())
            settings = {
                "MODEL_UPSTREAM": model.url,
                # Nobody else's IRC server is linked to pages without a public address.
                "WEB_PORT": str(port := free_port()),
                "WEB_PUBLIC_URL": f"http://127.0.0.1:{port}",
                "IRC_SERVER": ircd.host,
                "IRC_PORT": str(ircd.port),
                "IRC_CHANNELS": ",".join(rooms),
                "IRC_LINES_PER_SECOND": "20",
                "IRC_PERSON_PER_MINUTE": "1000",
                "IRC_CHANNEL_PER_MINUTE": "3000",
                "TERRARIUM_LOG_LEVEL": "error",
            }
            up = await stack.enter_async_context(terrarium_up(folder, **settings))
            people: dict[str, IrcClient] = {}
            for nick in (_EARS, *PEOPLE, *nicks):
                people[nick] = await stack.enter_async_context(irc_client(ircd.port, nick))
                for room in rooms:
                    await people[nick].join(room)
            this = cls(up, model, people)
            listening = [asyncio.create_task(this._listen(person)) for person in people.values()]
            try:
                yield this
            finally:
                for task in listening:
                    task.cancel()
                await asyncio.gather(*listening, return_exceptions=True)

    async def morning(self) -> None:
        """Say what is said before the first question."""
        for nick, text in today():
            await self.say(nick, text)

    async def say(self, nick: str, text: str, to: str = ROOM) -> None:
        """Say a line; on a channel, return when it has reached the others there."""
        await self.people[nick].say(to, text)
        async with asyncio.timeout(PATIENCE):
            while to.startswith("#") and (nick, text) not in self._passed:
                self._news.clear()
                await self._news.wait()
        self._passed.discard((nick, text))

    async def take(self, turn: Turn) -> tuple[Played, str]:
        """Take a turn: return how it was played, and all that the asker got to read of it."""
        for nick, text in spoken("\n".join(turn.before)):
            await self.say(nick, text)
        match turn.door:
            case "web":
                return await self._ask_web(turn)
            case "terminal":
                return await self._ask_terminal(turn)
            case "cron":
                return await self._wait(self.model.play(turn), DIGESTS, turn.who)
        place = {"private": turn.who, "greenhouse": GREENHOUSE}.get(turn.door, ROOM)
        return await self.ask(turn, place)

    async def ask(self, turn: Turn, place: str) -> tuple[Played, str]:
        """Ask on a channel or, if `place` is the asker, in private."""
        # Nobody types faster, so who does is taken for another bot.
        typed = self._answered.get(turn.who, 0.0) + _REACTION + len(turn.text) / _TYPED
        await asyncio.sleep(max(0.0, typed - time.perf_counter()))
        played = self.model.play(turn)
        command = turn.text if place == turn.who else f".terrarium {turn.text}"
        await self.say(turn.who, command, BOT if place == turn.who else place)
        answer = await self._wait(played, place, turn.who)
        self._answered[turn.who] = time.perf_counter()
        return answer

    async def _wait(self, played: Played, place: str, nick: str) -> tuple[Played, str]:
        """Wait for the end of an answer; return it with the text behind its links."""
        begin, number = time.perf_counter(), len(self.heard)
        while (now := time.perf_counter()) - begin < _LONGEST:
            lines = [line for line in self.heard[number:] if line.to in (place, nick)]
            last = max([begin, self.model.active, *(line.at for line in lines)])
            quiet = _QUIET if played.requests and lines else _QUIET_UNASKED
            is_due = played.requests or played.turn.door != "cron"
            if not self.model.busy and is_due and now - last > quiet:
                break
            if played.is_answered and any(line.text.endswith(_end(played)) for line in lines):
                break
            await asyncio.sleep(_LOOK)
        texts = [line.text.removeprefix(f"{nick}: ") for line in self.heard[number:]]
        links = list(dict.fromkeys(_LINK.findall("\n".join(texts))))
        async with httpx2.AsyncClient(trust_env=False) as http:
            texts += [_text_of((await http.get(link)).text) for link in links]
        return played, "\n".join(texts)

    async def _ask_web(self, turn: Turn) -> tuple[Played, str]:
        played = self.model.play(turn)
        body = {"text": turn.text}
        if turn.image:
            body["image"] = base64.b64encode(_DOT).decode()
        async with httpx2.AsyncClient(base_url=self.up.web, trust_env=False, timeout=60) as http:
            answer = await http.post("/chat", json=body)
        pieces = [json.loads(line) for line in answer.text.splitlines()]
        return played, _text_of(pieces[-1].get("html", "")) if pieces else ""

    async def _ask_terminal(self, turn: Turn) -> tuple[Played, str]:
        played = self.model.play(turn)
        done = await terrarium(
            "chat", "--data", str(self.up.data), cwd=self.up.data, said=f"{turn.text}\n"
        )
        return played, done.out

    async def _listen(self, person: IrcClient) -> None:
        """Keep the bot's private lines to a person; the one who only listens hears the channels."""
        while True:
            match = await person.expect(r" (?:PRIVMSG|NOTICE) ", timeout=24 * 3600)
            if not (line := _LINE.match(match.string)):
                continue
            nick, to, text = line["nick"], line["to"], line["text"]
            if nick == BOT and to.startswith("#") == (person.nick == _EARS):
                self.heard.append(Heard(time.perf_counter(), to, text))
            elif person.nick == _EARS:
                self._passed.add((nick, text))
            self._news.set()


async def _write_past(folder: Path) -> None:
    """Write the log of the time before the day."""
    now = datetime.now(UTC)
    async with Database.open(folder / "irc.db") as database, ChatLog.open(database) as log:
        await log.add(list(past(now)))
        begin = now - timedelta(hours=5)
        for number in range(LATE_LINES):
            line = f"line {number} of a channel where much is said, and nothing of weight"
            event = Event(
                network=NETWORK,
                channel=LATE,
                type=EventType.PRIVMSG,
                time=begin + timedelta(seconds=30 * number),
                nick=PEOPLE[number % len(PEOPLE)],
                text=line,
            )
            await log.add([event])


def _end(played: Played) -> str:
    """Return the last words of an answer."""
    return played.turn.expected[-_END:]


class _Text(HTMLParser):
    """Collects the text of a page as a browser shows it, with the numbers of lists."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._number = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Number the items of an ordered list."""
        if tag == "ol":
            self._number = int(dict(attrs).get("start") or 1)
        elif tag == "li" and self._number:
            self.parts.append(str(self._number))
            self._number += 1

    def handle_data(self, data: str) -> None:
        """Keep a piece of text."""
        self.parts.append(data)


def _text_of(html: str) -> str:
    parser = _Text()
    parser.feed(html)
    return " ".join(parser.parts)
