"""The commands of people are the same on every medium, and no person's words end a tendril."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import json
import re
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from structlog.testing import capture_logs

from harnesses.core.scaffold import Kind, scaffold
from storage.queues.reminders import Tells
from terrarium import (
    ChatTendril,
    CommandRequest,
    Config,
    Identity,
    NotUnderstood,
    Place,
    ToolError,
    command,
)
from tests.kit.command import environment_without_settings
from tests.kit.irc_client import irc_member
from tests.kit.irc_tendril import ROOM, irc_config, irc_tendril
from tests.kit.ircd import embedded_ircd
from tests.kit.openai_script import Answer, ScriptedOpenAI
from tests.kit.patience import PATIENCE, until
from tests.kit.room_tendril import ADA, BOB, EditedPondTendril, PondTendril, ready
from tests.kit.web_site import web_site

Ask = Callable[[str, str], Awaitable[str]]
"""Types a line, and returns the first line of a reply that a pattern matches."""

REPLIES = (
    (".ping", "pong"),
    (".version", r"Terrarium \d"),
    (".about", "I am Terra, a bot"),
    (".about abilities", "I answer questions"),
    (".about model", "My model is "),
    (".about pigs", "About what[?] One of: abilities, identity, model."),
    (".help", r"\.terrarium \.ask \.search .*\.forget"),
    (".help search", r"\.search WORDS: find lines of this channel"),
    (".help frobnicate", r"There is no command frobnicate; \.help lists them\."),
    (".who", "here"),
    (".remember tea oolong", "I will remember: your tea is oolong."),
    (".recall tea", "Your tea is oolong."),
    (".recall", "I remember these facts about you here: tea = oolong."),
    (".memory", "Our conversation here has 0 turns, and you have 0 reminders."),
    (".forget tea", "Forgotten: your tea."),
    (".remind in 2 hours stir", "I will remind you on .* .reminder 1."),
    (".remind soonish", "I understand times like these"),
    (".remind", "When, and what about[?]"),
    (".reminders", "1: .*: stir"),
    (".reminders cancel 7", "You have no reminder 7."),
    (".reminders cancel stir", "Cancelled: stir"),
    (".schedule every monday at 9 sum up", "I will do that on .*, and again each time"),
    (".reminders cancel all", "Cancelled: sum up"),
    (".search purple llama", "Nothing found."),
    (".search", r"Search for what[?] \.search WORDS"),
    (".stats", r"\d+ lines? by \d (person|people)"),
    (".ask", r"Ask me something: \.terrarium QUESTION"),
    (".ask what is the answer to everything", "Forty-two."),
    (".compact", "Our conversation is already short."),
    (".clear", "Forgotten: our conversation of 1 turn."),
    (".stop", "There is nothing to stop"),
    (".more", "There is no more."),
    (".seen Terra", "I am here."),
    (".seen @zork", "I do not know z\u200b?ork."),
    (".tell", r"Whom, and what[?] \.tell NICK TEXT"),
    (".tell zork: milk", "I do not know zork: I can only tell|I keep no messages for others"),
    (".ask @big why", "I have no model big."),
    (".ask @terra what is the answer to everything", "Forty-two."),
    (".nolog for bob", "You can only opt out yourself"),
    (".forget me", "yours|Forgotten: our conversation"),
)


@asynccontextmanager
async def irc(data: Path, url: str) -> AsyncIterator[Ask]:
    async with (
        embedded_ircd() as ircd,
        irc_tendril(irc_config(data, ircd.port, url, irc={"channel_per_minute": 6_000})),
        irc_member(ircd.port, "ada") as ada,
    ):

        async def ask(words: str, pattern: str) -> str:
            match = await ada.ask(words, rf":Terra!\S+ \w+ \S+ :(.*(?:{pattern}).*)$", room=ROOM)
            return str(match[1])

        yield ask


@asynccontextmanager
async def terminal(data: Path, url: str) -> AsyncIterator[Ask]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "harnesses.cli", "chat", "--data", str(data)),
        stdin=PIPE,
        stdout=PIPE,
        env=environment_without_settings() | {"AGENT_API_URL": url, "LOGNAME": "ada"},
    )
    assert process.stdin
    assert process.stdout
    try:
        yield lines_of(process.stdout, process.stdin)
        process.stdin.close()
        async with asyncio.timeout(PATIENCE):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@asynccontextmanager
async def browser(data: Path, url: str) -> AsyncIterator[Ask]:
    """The requests of the chat page, each from another address, as rates are those of addresses."""
    settings, addresses = {"proxies": ["127.0.0.1"]}, itertools.count(1)
    async with web_site(data, agent_url=url, settings=settings) as site:

        async def ask(words: str, pattern: str) -> str:
            headers = {"x-forwarded-for": f"192.0.2.{next(addresses)}", "origin": site.url}
            answer = await site.http.post("/chat", json={"text": words}, headers=headers)
            assert answer.status_code == 200, answer.text
            text = re.sub("<[^>]+>", "", json.loads(answer.text.splitlines()[-1])["html"])
            assert re.search(pattern, unescape(text)), text
            return text

        yield ask


@asynccontextmanager
async def scaffolded(data: Path, url: str) -> AsyncIterator[Ask]:
    async with letters(data, url) as tendril, tcp(tendril) as ask:
        yield ask


@asynccontextmanager
async def letters(data: Path, url: str, **more: Any) -> AsyncIterator[Any]:
    """The tendril of `terrarium new letters --kind chat`, in this process; its rate limit apart."""
    name = f"terrarium_letters{len(sys.modules)}"
    folder = scaffold("letters", Path(mkdtemp(dir=data)), Kind.CHAT) / "terrarium_letters"
    folder.rename(folder.with_name(name))
    sys.path.insert(0, str(folder.parent))
    try:
        made: type[ChatTendril] = importlib.import_module(f"{name}.tendril").LettersTendril
    finally:
        sys.path.remove(str(folder.parent))
    body = {"__module__": made.__module__, "per_minute": 6_000.0, **more}
    kind: Any = type("QuickLetters", (made,), body)
    tables = {"agent": {"api_url": url, "timezone": "UTC"}, "letters": {"port": 0}}
    async with ready(kind(Config(tables, None, data))) as tendril:
        yield tendril


@asynccontextmanager
async def tcp(tendril: Any, nick: str = "ada") -> AsyncIterator[Ask]:
    reader, writer = await asyncio.open_connection("127.0.0.1", tendril.port)
    writer.write(f"{nick}\n".encode())
    try:
        yield lines_of(reader, writer)
    finally:
        writer.close()


def lines_of(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Ask:
    async def ask(words: str, pattern: str) -> str:
        writer.write(f"{words}\n".encode())
        async with asyncio.timeout(PATIENCE):
            while True:
                line = (await reader.readline()).decode()
                assert line, f"{words}: nothing like {pattern}"
                if re.search(pattern, line) and not line.startswith("<ada>"):
                    return line.strip()

    return ask


@pytest.mark.process
@pytest.mark.parametrize("door", [irc, terminal, browser, scaffolded])
async def test_every_command_has_the_same_reply_on_every_medium(
    tmp_path: Path, door: Callable[[Path, str], Any]
) -> None:
    async with ScriptedOpenAI() as script:
        script.default = Answer("Forty-two.")
        async with door(tmp_path, script.url) as ask:
            for words, pattern in REPLIES:
                await ask(words, pattern)


async def test_who_was_away_is_told_what_others_wanted_once_and_nobody_else_is(
    tmp_path: Path,
) -> None:
    told = r"ada wants you to know \(.* UTC\): buy milk"
    async with ScriptedOpenAI() as script:
        async with letters(tmp_path, script.url) as tendril, tcp(tendril) as ada:
            async with tcp(tendril, "bob") as bob:
                await bob("good night", "<bob> good night")
            await ada(".seen BOB", "bob .* on .* UTC: good night")
            await ada(".tell bob buy milk", "I will tell bob that when they speak.")
            for _ in range(2):
                await ada(".tell bob eat", "I will tell bob")
            await ada(".tell bob sleep", "Too many messages already wait for bob.")
        async with letters(tmp_path, script.url) as tendril:  # restarted
            async with tcp(tendril, "bobby") as bobby:
                await bobby("hello", "<bobby> hello")
            await tendril.privacy.opt_out(Identity("eve", "eve", "127.0.0.1"))
            async with tcp(tendril, "bob") as bob, tcp(tendril) as ada:
                assert (await bob("hello", "wants")).startswith("<Terra> bob: ada wants")
                assert not await Tells(tendril.database).for_person("letters", "bobby", None)
                async with tcp(tendril, "eve") as eve:
                    await eve("hello", "<eve> hello")
                await ada(
                    ".tell eve hi",
                    "I do not know eve: I can only tell people who have spoken here.",
                )
                await ada(".ping", "pong")
            said = [event.text for event in await tendril.log.recent("#letters")]
            assert sum(re.search(told, text) is not None for text in said) == 1
            await tendril.privacy.forget(
                tendril.privacy.person(Identity("ada", "ada", "127.0.0.1"))
            )
            said = [event.text for event in await tendril.log.recent("#letters")]
            assert not any("buy milk" in text for text in said)


async def test_an_error_of_one_line_ends_nothing_else(tmp_path: Path) -> None:
    async def fails(self: ChatTendril) -> None:
        raise OSError("no water")

    with capture_logs() as logs:
        async with (
            ScriptedOpenAI() as script,
            letters(tmp_path, script.url) as tendril,
            tcp(tendril) as ask,
        ):
            tendril.spawn(fails(tendril))
            await ask("\x1b[2J" + "x" * 4_000 + "\n.who", "here")
            await ask(".remind soonish", "I understand times like these")
            await ask(".ping", "pong")
    assert [each["log_level"] for each in logs if each["event"] == "task.failed"] == ["error"]


@asynccontextmanager
async def pond(
    data: Path, script: ScriptedOpenAI, kind: type[PondTendril] = PondTendril
) -> AsyncIterator[PondTendril]:
    config = Config({"agent": {"api_url": script.url, "timezone": "UTC"}}, None, data)
    async with ready(kind(config)) as tendril:
        yield tendril


class StrictPond(PondTendril):
    @command
    async def feed(self, request: CommandRequest) -> str:
        """feed FISH: feed it"""
        if request.words:
            raise ToolError("There is no such fish.")
        raise NotUnderstood("Which fish?")


async def test_a_command_tells_its_author_their_mistake(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, pond(tmp_path, script, StrictPond) as tendril:
        for words, reply in ((".feed", "Which fish?"), (".feed cod", "There is no such fish.")):
            tendril.hear("#pond", ADA, words)
            assert await tendril.hears() == ("pond", reply)


async def test_an_answer_grows_where_messages_can_be_edited(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, pond(tmp_path, script, EditedPondTendril) as tendril:
        script.card = {"parameters": 8_000_000_000}
        for network in ("pond", "away"):
            script.hold().hang("At six.")
            tendril.hear(Place(network, "#pond"), ADA, "Terra: when?")
            assert await tendril.hears() == (network, draft := "ada: At six.")
            script.release()
            assert await tendril.hears() == (f"{network}, edited {draft}", draft)
        assert await tendril.hears() == ("away", draft)
        await until(lambda: not tendril.turns.pending)
        said = [line.text for line in await tendril.log.recent("#pond")]
        assert said == ["Terra: when?", "At six."]


ACCOUNT = Identity("ada", "ada", "192.0.2.1", "ada")
GUEST = Identity("ada", "x", "192.0.2.9")


@pytest.mark.parametrize(
    ("owner", "other", "is_same"),
    [
        (ACCOUNT, GUEST, False),
        (GUEST, Identity("ada", "y", "192.0.2.8"), False),
        (ACCOUNT, Identity("ada", "ada", "192.0.2.1", "mallory"), False),
        (ACCOUNT, Identity("~ada"), False),
        (GUEST, Identity("ada!x@192.0.2.9"), False),
        (ACCOUNT, Identity("Adele", "z", "192.0.2.7", "Ada"), True),
        (Identity("ada"), Identity("Ada"), True),  # the nick is all there is
    ],
)
async def test_what_is_remembered_belongs_to_an_identity_and_not_to_a_nick(
    tmp_path: Path, owner: Identity, other: Identity, is_same: bool
) -> None:
    async with ScriptedOpenAI() as script, pond(tmp_path, script) as tendril:
        script.card = {"parameters": 8_000_000_000}

        async def says(who: Identity, text: str) -> str:
            tendril.hear("#pond", who, text)
            return (await tendril.hears())[1].removeprefix(f"{who.nick}: ")

        script.say("I see.")
        assert await says(owner, "Terra: the carp are called Ulf and Uta") == "I see."
        assert "your tea is oolong" in await says(owner, ".remember tea oolong")
        assert ("oolong" in await says(other, ".recall tea")) is is_same
        assert (" 1 turn" in await says(other, ".memory")) is is_same
        assert ("Forgotten" in await says(other, ".forget tea")) is is_same
        assert ("1 turn" in await says(other, ".clear")) is is_same
        assert ("oolong" in await says(owner, ".recall tea")) is not is_same
        assert (" 1 turn" in await says(owner, ".memory")) is not is_same
        await says(owner, ".remember tea oolong")
        await tendril.privacy.forget(tendril.privacy.person(other))
        is_erased = is_same and other.account is not None  # a nick alone proves nothing
        assert ("oolong" in await says(owner, ".recall tea")) is not is_erased


async def test_the_same_room_on_two_networks_is_two_rooms(tmp_path: Path) -> None:
    north, south = Place("north", "#pond"), Place("south", "#pond")
    async with ScriptedOpenAI() as script, pond(tmp_path, script) as tendril:
        script.card = {"parameters": 8_000_000_000}
        tendril.hear(north, ADA, "the llama is purple")
        tendril.hear(north, ADA, ".remember tea oolong")
        assert await tendril.hears() == ("north", "ada: I will remember: your tea is oolong.")
        tendril.hear(south, ADA, ".search llama")
        assert await tendril.hears() == ("south", "ada: Nothing found.")
        tendril.hear(south, ADA, ".who")
        assert await tendril.hears() == ("south", "ada: 1 here: ada")
        for name, arguments in (("search_log", {"query": "llama"}), ("people", {})):
            script.call(name, arguments)
        script.say("I do not know.")
        tendril.hear(south, ADA, "Terra: who is here, and what is purple?")
        assert await tendril.hears() == ("south", "ada: I do not know.")
        found, people = [
            m["content"] for m in script.requests[-1]["messages"] if m["role"] == "tool"
        ]
        assert "purple" not in found
        assert "ada" in people
        assert "bob" not in people
        for _ in range(20):
            tendril.hear(south, ADA, ".ping")
        tendril.hear(north, ADA, ".ping")
        heard = ("south", "")
        while heard[0] == "south":
            heard = await tendril.hears()
        assert heard == ("north", "ada: pong")


async def test_who_has_left_is_not_answered_and_what_is_no_image_is_said(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, pond(tmp_path, script) as tendril:
        script.card = {"parameters": 8_000_000_000}
        script.hang("At")
        tendril.note_join("#pond", BOB)
        tendril.hear("#pond", BOB, "Terra: when does the pump start?")
        await script.arrived()
        tendril.note_leave("#pond", BOB, "good\x02 night")
        await script.client_gone()
        await tendril.privacy.opt_out(ADA)
        tendril.note_join("#pond", ADA)
        lines = [(line.type, line.text) for line in await tendril.log.recent("#pond")]
        assert lines == [
            ("JOIN", ""),
            ("PRIVMSG", "Terra: when does the pump start?"),
            ("PART", "good\ufffd night"),
        ]
        tendril.file = b"not an image"
        tendril.hear("#pond", ADA, "Terra: what is this?")
        _, text = await tendril.hears()
        assert text == "I cannot look at that: an image is a PNG, JPEG, GIF or WebP file."
