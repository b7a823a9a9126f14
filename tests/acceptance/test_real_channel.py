"""The main job on real parts: real lines, a real IRC server, the real model, the real command."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from storage.chat_log.event import Event, EventType, Place, Scope
from storage.db.database import Database
from storage.log import ChatLog, Query
from tests.kit.irc_client import IrcClient, irc_client
from tests.kit.ircd import inspircd
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.ports import free_port
from tests.kit.programs import accepting
from tests.kit.recorder import recorder
from tests.kit.terrarium import terrarium_up
from tests.kit.ubuntu import spoken

ROOM = "#terrarium"
QUESTIONS = (
    "what is the capital of France?",
    "who wrote Romeo and Juliet?",
    "and when did he write it?",
)


async def ask(client: IrcClient, question: str) -> str:
    """Ask in the channel and return the first line of the answer."""
    await client.say(ROOM, f".terrarium {question}")
    answer = rf":Terra!\S+ PRIVMSG {ROOM} :{client.nick}: (?!still at it)(.+)$"
    return (await client.expect(answer, timeout=300))[1]


async def logged(data: Path) -> list[Event]:
    """All that was said in the channel, from the file."""
    async with Database.open(data / "irc.db") as database:
        query = Query(scope=Scope.from_places(Place("irc", ROOM)), limit=10_000)
        events = await ChatLog(database).find(query)
    return [event for event in events if event.type is EventType.PRIVMSG]


@pytest.mark.timeout(600)
async def test_500_real_lines_three_questions_and_a_second_start(tmp_path: Path) -> None:
    lines = spoken(500)
    server_port = free_port()
    async with (
        inspircd() as ircd,
        recorder(f"http://127.0.0.1:{server_port}") as seen,
        irc_client(ircd.port, "rita") as rita,
        irc_client(ircd.port, "alice") as alice,
    ):
        await rita.join(ROOM)
        await alice.join(ROOM)
        settings = {
            "IRC_SERVER": "127.0.0.1",
            "IRC_PORT": str(ircd.port),
            "SERVER_PORT": str(server_port),
            "AGENT_API_URL": seen.url,
            "AGENT_MAX_TOKENS": "16",
            "MODEL_THREADS": "1",
        }
        async with terrarium_up(tmp_path, **settings):
            for line in lines:
                await rita.say(ROOM, line)
            await rita.settle()
            answers = [await ask(alice, question) for question in QUESTIONS[:2]]
        async with terrarium_up(tmp_path, **settings):
            answers.append(await ask(alice, QUESTIONS[2]))

    assert all(answers)
    events = await logged(tmp_path)
    assert [e.text.encode() for e in events if e.nick == "rita"] == lines
    assert [e.text for e in events if e.nick == "alice"] == [f".terrarium {q}" for q in QUESTIONS]

    first, second, third = seen.texts
    for text, question in zip((first, second, third), QUESTIONS, strict=True):
        assert text.endswith(f"\n\nQuestion: {question}\nAnswer:")
        assert text.count("Question:") == text.count("Answer:")
    assert f"Question: {QUESTIONS[1]}\nAnswer: " in third
    assert QUESTIONS[0] not in second


BESIDE = ("agent_server.engines.llama_child", "harnesses.cli server", "run web", "run cron")
"""The processes that the logging of a channel must not need."""


@pytest.mark.timeout(600)
async def test_kill_9_of_any_process_loses_no_logged_line(tmp_path: Path) -> None:
    async with inspircd() as ircd, irc_client(ircd.port, "alice") as alice:
        await alice.join(ROOM)
        settings = {
            "IRC_SERVER": "127.0.0.1",
            "IRC_PORT": str(ircd.port),
            "AGENT_MAX_TOKENS": "8",
            "MODEL_THREADS": "1",
            "MAX_CONTEXT_MESSAGES": "5",
        }
        async with terrarium_up(tmp_path, **settings) as up:
            for words in BESIDE:
                await say_lines(alice, f"before {words}")
                up.child(words).kill()
                await say_lines(alice, f"after {words}")
                await until_answered(alice)
            await say_lines(alice, "before the tendril itself")
            await kept(alice)
            up.child("run irc").kill()
            await alice.expect(r":Terra!\S+ QUIT")
            await say_lines(alice, "nobody listens")
            await alice.expect(rf":Terra!\S+ JOIN :?{ROOM}")
            await say_lines(alice, "back again")
            await until_answered(alice)
            assert up.process.returncode is None
    said = [event.text for event in await logged(tmp_path)]
    heard = [*(f"{when} {words}" for words in BESIDE for when in ("before", "after"))]
    heard += ["before the tendril itself", "back again"]
    lines = [text for text in said if text.split(": ")[0] in {*heard, "nobody listens"}]
    assert lines == [f"{text}: {number}" for text in heard for number in range(LINES)]


async def test_kill_9_of_the_embedded_irc_server_loses_no_logged_line(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, terrarium_up(tmp_path, MODEL_UPSTREAM=script.url) as up:
        async with irc_client(up.irc_port, "alice") as alice:
            await alice.join(ROOM)
            await say_lines(alice, "before")
            await kept(alice)
            server = up.child("harnesses.irc.ircd")
            server.kill()
            await alice.wait_closed()
            await asyncio.to_thread(server.wait, 10)  # its port is open until it is quite gone
        await accepting(up.irc_port)
        async with irc_client(up.irc_port, "bob") as bob:
            await bob.meet()
            await say_lines(bob, "after")
            assert await ask(bob, "still there?") == "ok"
    said = [event.text for event in await logged(tmp_path)]
    heard = [f"{when}: {number}" for when in ("before", "after") for number in range(LINES)]
    assert [text for text in said if text in heard] == heard


LINES = 25


async def say_lines(client: IrcClient, text: str) -> None:
    """Say numbered lines, and return when the server has them all."""
    for number in range(LINES):
        await client.say(ROOM, f"{text}: {number}")
    await client.settle()


async def kept(client: IrcClient) -> None:
    """Return when the log has all that was said before: it is counted, the command included."""
    await client.say(ROOM, ".stats")
    await client.expect(rf"{client.nick}: [\d,]+ lines by ")


async def until_answered(client: IrcClient) -> None:
    """Ask until it is the model that answers, for a minute at most."""
    async with asyncio.timeout(60):
        while (await ask(client, "hello?")).startswith("My model is not reachable"):
            pass
