"""With whom the bot has quoted go the texts that quote them, and no others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from harnesses.irc.tendril import IrcTendril
from storage.chat_log.event import EVERYTHING, Place
from storage.db.database import Database
from storage.log import Query
from storage.queues.outbox import Outbox
from tests.kit.data_files import files_with, outbox_path
from tests.kit.irc_client import IrcClient, irc_client
from tests.kit.irc_tendril import ROOM, conversation_with, irc_config, irc_tendril, kept_turns
from tests.kit.ircd import embedded_ircd
from tests.kit.openai_script import Answer, ScriptedOpenAI
from tests.kit.patience import until
from tests.kit.web_site import web_site
from tests.promises.test_forgetting import forget_me

SECRET = "under the seventh stone"
LINE = f"I have put the key of the shed {SECRET} behind the pond"
RETOLD = f"zoe says: I have put the key of the shed {SECRET}."
PLAIN = "Frogs sleep in the mud below the ice, as far as I know."


@asynccontextmanager
async def a_channel(
    data: Path, **tables: Any
) -> AsyncIterator[tuple[IrcClient, IrcClient, IrcTendril, ScriptedOpenAI]]:
    """Zoe, who has said `LINE` on the channel, and bob."""
    async with (
        embedded_ircd() as ircd,
        ScriptedOpenAI() as script,
        irc_tendril(irc_config(data, ircd.port, script.url, **tables)) as tendril,
        irc_client(ircd.port, "zoe") as zoe,
        irc_client(ircd.port, "bob") as bob,
    ):
        await zoe.join(ROOM)
        await bob.join(ROOM)
        await zoe.say(ROOM, LINE)
        yield zoe, bob, tendril, script


async def left(tendril: IrcTendril) -> tuple[list[str], list[str]]:
    """Return the lines in the log, and the questions of bob that memory has."""
    await tendril.services.log.flush()
    found = await tendril.services.log.find(Query(scope=EVERYTHING, limit=1_000))
    turns = await kept_turns(tendril, conversation_with("bob"))
    lines = [event.text for event in found if event.text]
    return lines, [str(turn.messages[0]["content"]) for turn in turns]


@pytest.mark.parametrize(
    ("kind", "question"),
    [
        ("seen", "when did you last see zoe?"),
        ("missed", "what did I miss?"),
        ("links", "which link did zoe post?"),
    ],
)
async def test_a_quoted_line_goes_with_who_said_it(
    kind: str, question: str, tmp_path: Path
) -> None:
    async with a_channel(tmp_path) as (zoe, bob, tendril, script):
        script.card = {"parameters": 135_000_000}
        script.reads = lambda _: kind
        await zoe.say(ROOM, f"who knows that it is {SECRET}? see https://frogs.example/")
        await bob.say(ROOM, f".terrarium {question}")
        await bob.expect(rf":bob: .*{SECRET}")
        assert any(SECRET in line for line in (await left(tendril))[0])
        await forget_me(zoe)
        lines, questions = await left(tendril)
        assert [line for line in lines if SECRET in line] == []
        assert questions == []
        assert files_with(tmp_path, SECRET) == []


async def test_an_answer_that_repeats_a_line_goes_and_another_stays(tmp_path: Path) -> None:
    async with a_channel(tmp_path) as (zoe, bob, tendril, script):
        script.say(PLAIN).say(RETOLD).say(f"As I said, {RETOLD}")
        assert await bob.reply_to(".terrarium where do frogs sleep?") == PLAIN
        assert await bob.reply_to(".terrarium where is the key?") == RETOLD
        # Only the earlier answer has it, which is a turn of the same conversation.
        assert await bob.reply_to(".terrarium say that again") == f"As I said, {RETOLD}"
        assert len((await left(tendril))[1]) == 3
        assert await forget_me(zoe) == (
            "Forgotten: 2 events of yours, with my replies to them and quotes of them."
        )
        lines, questions = await left(tendril)
        assert questions == ["where do frogs sleep?"]
        assert f"bob: {PLAIN}" in lines
        assert ".terrarium where is the key?" in lines
        assert not [line for line in lines if SECRET in line]
        assert files_with(tmp_path, SECRET) == []


async def test_a_turn_that_only_thinks_of_a_line_goes_its_answer_stays(tmp_path: Path) -> None:
    async with a_channel(tmp_path) as (zoe, bob, tendril, script):
        script.answer(Answer("Ask zoe for it.", reasoning=RETOLD))
        script.call("recall", {"key": RETOLD}).say("I do not remember.").say(PLAIN)
        assert await bob.reply_to(".terrarium where is the key?") == "Ask zoe for it."
        assert await bob.reply_to(".terrarium do you remember it?") == "I do not remember."
        assert await bob.reply_to(".terrarium where do frogs sleep?") == PLAIN
        assert files_with(tmp_path, RETOLD)
        await forget_me(zoe)
        lines, questions = await left(tendril)
        assert questions == ["where do frogs sleep?"]
        assert {"bob: Ask zoe for it.", "bob: I do not remember."} <= set(lines)
        assert files_with(tmp_path, SECRET) == []


async def test_a_turn_whose_tool_found_a_line_goes_its_answer_stays(tmp_path: Path) -> None:
    async with a_channel(tmp_path, agent={"max_context_messages": 0}) as (
        zoe,
        bob,
        tendril,
        script,
    ):
        script.call("search_log", {"query": "key shed"}).say("Ask zoe for the key.")
        script.say(PLAIN)
        assert await bob.reply_to(".terrarium who knows about it?") == "Ask zoe for the key."
        assert await bob.reply_to(".terrarium where do frogs sleep?") == PLAIN
        assert SECRET in str(script.requests)
        await forget_me(zoe)
        lines, questions = await left(tendril)
        assert questions == ["where do frogs sleep?"]
        assert "bob: Ask zoe for the key." in lines
        assert files_with(tmp_path, SECRET) == []


async def test_a_long_answer_and_a_line_that_was_said_before_its_end_go_too(tmp_path: Path) -> None:
    many = "\n".join([RETOLD, *(f"{number}: {RETOLD}" for number in range(8))])
    async with a_channel(tmp_path, irc={"stream_after": 0}) as (zoe, bob, tendril, script):
        script.say(many)
        assert await bob.reply_to(".terrarium where is the key?") == RETOLD
        await bob.expect(r"more lines: \.more\)")
        assert SECRET in await bob.reply_to(".more")
        assert await tendril.database.fetch_all("SELECT 1 FROM pastes")
        await forget_me(zoe)
        assert not [line for line in (await left(tendril))[0] if SECRET in line]
        assert files_with(tmp_path, SECRET) == []


async def test_a_text_behind_a_link_goes_with_whom_it_quotes(tmp_path: Path) -> None:
    async with a_channel(tmp_path) as (zoe, bob, tendril, script), web_site(tmp_path):
        script.call("paste", {"text": RETOLD}).say("It is behind the link.")
        script.call("paste", {"text": PLAIN}).say("That too.")
        await bob.reply_to(".terrarium where is the key?")
        await bob.reply_to(".terrarium where do frogs sleep?")
        pastes = "SELECT text FROM pastes ORDER BY time"
        kept = await tendril.database.fetch_all(pastes)
        assert [row["text"] for row in kept] == [RETOLD, PLAIN]
        await forget_me(zoe)
        assert [row["text"] for row in await tendril.database.fetch_all(pastes)] == [PLAIN]
        assert files_with(tmp_path, SECRET) == []


async def test_a_line_quoted_in_the_web_chat_goes_with_who_said_it(tmp_path: Path) -> None:
    async with a_channel(tmp_path) as (zoe, _, tendril, script):
        script.card = {"parameters": 135_000_000}
        script.reads = lambda _: "local"
        await tendril.services.log.flush()
        async with web_site(tmp_path, agent_url=script.url) as site:
            asked = {"text": "where is the key of the shed?"}
            assert SECRET in (await site.http.post("/chat", json=asked)).text
            assert SECRET in (await site.http.get("/chat")).text
            await forget_me(zoe)
            assert SECRET not in (await site.http.get("/chat")).text
        assert files_with(tmp_path, SECRET) == []


async def test_lines_that_a_search_has_found_go_with_whom_they_quote(tmp_path: Path) -> None:
    async with a_channel(tmp_path) as (zoe, bob, tendril, _):
        await bob.say(ROOM, "nobody goes to the pond in winter")
        assert SECRET in await bob.reply_to(".search shed")
        assert "in winter" in await bob.reply_to(".search winter")
        await forget_me(zoe)
        lines, _ = await left(tendril)
        (found,) = [line for line in lines if line.startswith("bob: [")]
        assert found.endswith("in winter")
        assert files_with(tmp_path, SECRET) == []


async def test_a_message_of_another_tendril_goes_with_whom_it_quotes(tmp_path: Path) -> None:
    async with (
        a_channel(tmp_path) as (zoe, bob, tendril, _),
        Database.open(outbox_path(tmp_path)) as database,
    ):
        await bob.ping()
        await tendril.services.log.flush()
        lines = await tendril.services.log.find(Query(scope=EVERYTHING, nick="zoe"))
        quotes = [line.id for line in lines if line.text]
        outbox = Outbox(database)
        for place in (ROOM, "#elsewhere"):
            text = f"Of today: {RETOLD}"
            await outbox.put(place, Place("irc", place), text, quotes=quotes)
        await outbox.put("other", Place("irc", ROOM), PLAIN)
        await bob.expect(PLAIN)

        async def is_noted() -> bool:  # after it was said
            return len(await outbox.list_unsent()) == 1

        await until(is_noted)
        await forget_me(zoe)
        assert await outbox.list_unsent() == []
        found, _ = await left(tendril)
        assert PLAIN in found
        assert not [line for line in found if SECRET in line]
    assert files_with(tmp_path, SECRET) == []
