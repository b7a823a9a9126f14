"""Two IRC tendrils on one network: one is active and is killed, the other takes over."""

from __future__ import annotations

import re
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from storage.chat_log.event import PUBLIC, SPOKEN
from storage.db.database import Database
from storage.log import ChatLog, Query
from storage.settings import log_address
from terrarium.config import Config
from tests.kit.command import begun, line_with, terrarium
from tests.kit.irc_client import IrcClient, irc_client
from tests.kit.irc_tendril import ROOM
from tests.kit.ircd import Ircd, inspircd
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import until
from tests.kit.postgres import postgres_database
from tests.kit.programs import kill

pytestmark = pytest.mark.process

_HEARD = re.compile(r"^(?:@\S+ )?:(?P<nick>[^!]+)!\S+ PRIVMSG #terrarium :(?P<text>.*)$")


class Pair:
    """Tendrils that share a log, and a network with somebody who writes down all.

    They share a data folder, or are on machines of their own with a database at `url`.
    """

    def __init__(
        self, folder: Path, ircd: Ircd, script: ScriptedOpenAI, ears: IrcClient, url: str = ""
    ) -> None:
        self.folder, self.ircd, self.script, self.ears = folder, ircd, script, ears
        self.config, self._url = folder / "terrarium.toml", url
        self.config.write_text(
            f'[agent]\napi_url = "{script.url}"\n'
            f'[irc]\nserver = "127.0.0.1"\nport = {ircd.port}\nlines_per_second = 100\n'
            "person_per_minute = 600\nstandby = true\n"
            + (f'[storage]\nurl = "{url}"\n' if url else "")
        )

    def arguments(self, machine: str) -> tuple[str, ...]:
        """Return the command that runs one on a machine."""
        data = self.folder / (machine if self._url else "data")
        return ("run", "irc", "--config", str(self.config), "--data", str(data))

    @asynccontextmanager
    async def tendril(self, nick: str) -> AsyncIterator[Process]:
        """Run one that has come to the channel as `nick`, on a machine of that name."""
        async with begun(*self.arguments(nick), cwd=self.folder) as process:
            await self.ears.expect(rf":{re.escape(nick)}!\S+ JOIN :?#terrarium")
            yield process

    def heard(self) -> list[tuple[str, str]]:
        """Return what was said on the channel: nicks and words, in order."""
        found = map(_HEARD.match, self.ears.lines)
        return [(match["nick"], match["text"]) for match in found if match]

    async def logged(self) -> list[tuple[str, str]]:
        """Return the same of the log, once it has as much as was heard. Our own words are logged
        when the server has confirmed them, which may be a line later."""
        storage = {"url": self._url} if self._url else {}
        address = log_address(Config({"storage": storage}, None, self.folder / "data"))
        query = Query(scope=PUBLIC, types=SPOKEN, limit=1000)

        async def found() -> list[tuple[str, str]]:
            lines = [(event.nick, event.text) for event in await log.find(query)]
            return lines if len(lines) >= len(self.heard()) else []

        async with Database.open(address) as database:
            log = ChatLog(database)
            lines: list[tuple[str, str]] = await until(found)
            return lines


def _of(lines: list[tuple[str, str]], nick: str) -> list[str]:
    return [text for speaker, text in lines if speaker == nick]


@pytest.fixture(params=["sqlite", "postgres"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pair]:
    url = postgres_database() if request.param == "postgres" else ""
    async with (
        inspircd() as ircd,
        ScriptedOpenAI() as script,
        irc_client(ircd.port, "ears", "server-time") as ears,
    ):
        await ears.join(ROOM)
        yield Pair(tmp_path, ircd, script, ears, url)


async def test_the_standby_takes_over_and_no_line_is_lost_or_logged_twice(pair: Pair) -> None:
    pair.script.default = lambda body: body["messages"][-1]["content"].split()[-1] + "!"
    async with (
        pair.tendril("Terra") as active,
        pair.tendril("Terra_") as standby,
        irc_client(pair.ircd.port, "alice") as alice,
    ):
        await alice.join(ROOM)
        for number in range(20):
            await alice.say(ROOM, f"before {number}")
        await alice.say(ROOM, ".terrarium say early")
        await alice.expect(r":Terra!\S+ PRIVMSG #terrarium :alice: early!")
        await alice.say(ROOM, ".remind 1s the oven")
        await alice.expect("alice: reminder: the oven")
        await alice.say(ROOM, "the last words before")
        await kill(active)
        for number in range(20):
            await alice.say(ROOM, "the same again" if number % 3 else f"during {number}")
        await alice.say(ROOM, ".terrarium say during")
        await alice.say(ROOM, ".ping")
        await alice.expect(r":Terra_?!\S+ PRIVMSG #terrarium :alice: (during!|pong)")
        await alice.expect(r":Terra_?!\S+ PRIVMSG #terrarium :alice: (during!|pong)")
        await alice.say(ROOM, "Terra: say after")
        await alice.expect(r":Terra!\S+ PRIVMSG #terrarium :alice: after!")
        await pair.ears.expect("alice: after!")
        heard = pair.heard()
        logged = await pair.logged()
        assert sorted(logged) == sorted(heard)
        assert _of(logged, "alice") == _of(heard, "alice")
        replies = sorted(text for nick, text in heard if nick.startswith("Terra"))
        assert [text for text in replies if "remind" not in text] == [
            "alice: after!",
            "alice: during!",
            "alice: early!",
            "alice: pong",
        ]
        assert sum("reminder: the oven" in text for text in replies) == 1
        standby.terminate()
        assert await standby.wait() == 0


async def test_a_question_that_was_being_answered_is_answered_by_the_standby(pair: Pair) -> None:
    async with (
        pair.tendril("Terra") as active,
        pair.tendril("Terra_"),
        irc_client(pair.ircd.port, "alice") as alice,
    ):
        await alice.join(ROOM)
        pair.script.hang()
        await alice.say(ROOM, ".terrarium what is the capital of France?")
        await pair.script.arrived(1)
        pair.script.say("Paris.")
        await kill(active)
        await alice.expect(r":Terra_?!\S+ PRIVMSG #terrarium :alice: Paris\.")
        await alice.ping()
        await pair.ears.expect("alice: pong")
        assert sorted(await pair.logged()) == sorted(pair.heard())
        assert len(pair.script.requests) == 2


async def test_one_that_stops_hands_over_at_once_and_then_stands_by(pair: Pair) -> None:
    async with pair.tendril("Terra") as active, pair.tendril("Terra_"):
        active.terminate()
        assert await active.wait() == 0
        await pair.ears.expect(r":Terra_!\S+ NICK :?Terra$")
        async with pair.tendril("Terra_"):
            pass


async def test_only_those_that_are_to_share_the_work_run_beside_one_another(pair: Pair) -> None:
    async with pair.tendril("Terra"):
        command = pair.arguments("another machine")
        alone = await terrarium(*command, cwd=pair.folder, IRC_STANDBY="false")
        assert alone.status != 0
        assert re.search("already runs|another IRC tendril is active", alone.err)


@pytest.mark.parametrize("standby", [True, False])
async def test_one_that_names_other_networks_is_refused(pair: Pair, standby: bool) -> None:
    async with pair.tendril("Terra"):
        text = pair.config.read_text().replace("standby = true", f"standby = {standby}".lower())
        network = f'[irc.networks.pond]\nserver = "127.0.0.1"\nport = {pair.ircd.port}\n'
        pair.config.write_text(f"{text}{network}")
        other = await terrarium(*pair.arguments("another machine"), cwd=pair.folder)
        assert other.status != 0
        wanted = "is on irc, not on pond: name the same networks in \\[irc\\] for both"
        assert re.search(wanted if standby else f"already runs|{wanted}", other.err)


async def test_one_that_was_frozen_and_replaced_says_nothing_and_stands_by(pair: Pair) -> None:
    async with (
        pair.tendril("Terra") as frozen,
        pair.tendril("Terra_"),
        irc_client(pair.ircd.port, "alice") as alice,
    ):
        await alice.join(ROOM)
        frozen.send_signal(signal.SIGSTOP)
        await alice.say(ROOM, ".ping")
        await alice.expect(r":Terra_!\S+ PRIVMSG #terrarium :alice: pong")
        frozen.send_signal(signal.SIGCONT)
        await line_with(frozen.stderr, "standing by")
        await pair.ears.expect(r":Terra!\S+ QUIT")
        await pair.ears.expect(r":Terra_!\S+ NICK :?Terra$")
        await alice.say(ROOM, ".ping")
        await alice.expect(r":Terra_?!\S+ PRIVMSG #terrarium :alice: pong")
        await alice.settle()
        await pair.ears.settle()
        assert [text for _, text in pair.heard()] == [".ping", "alice: pong"] * 2
        assert sorted(await pair.logged()) == sorted(pair.heard())
