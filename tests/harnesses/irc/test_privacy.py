"""`.nolog`, `[nolog]` and `.forget me` on a real channel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from sqlite3 import connect

from harnesses.irc.tendril import IrcTendril
from storage.chat_log.event import EVERYTHING, Identity
from storage.log import Query
from tests.kit.irc_client import IrcClient
from tests.kit.irc_scene import NOBODY, alice_in
from tests.kit.irc_tendril import ROOM, conversation_with, kept_turns
from tests.kit.jobs import settled
from tests.kit.openai_script import Answer, ScriptedOpenAI

SECRET = "xyzzyplughplover"


@asynccontextmanager
async def answering(text: str) -> AsyncIterator[ScriptedOpenAI]:
    """A model that always says the same."""
    async with ScriptedOpenAI() as script:
        script.default = Answer(text)
        yield script


async def texts(tendril: IrcTendril) -> list[str]:
    await tendril.services.log.flush()
    found = await tendril.services.log.find(Query(scope=EVERYTHING, limit=1_000))
    return [f"{event.nick}: {event.text}" for event in found if event.text]


def raw(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.db*")))


async def test_who_says_nolog_is_not_logged_until_they_take_it_back(tmp_path: Path) -> None:
    async with alice_in(tmp_path, NOBODY) as (alice, tendril):
        await alice.say(ROOM, "first")
        assert (await alice.told(".nolog bob")).startswith("You can only opt out yourself")
        assert (await alice.told(".nolog")).startswith("I no longer store what you say")
        await alice.say(ROOM, f"second {SECRET}")
        await alice.send(f"NOTICE {ROOM} :third {SECRET}")
        await alice.send("NICK alicia")
        await alice.send("NICK alice")
        assert await alice.told(".nolog off") == "You are logged again."
        await alice.say(ROOM, "fourth")
        await alice.ask(".ping", "alice: pong")
        said = await texts(tendril)
        assert said[0] == "alice: first"
        assert "alice: fourth" in said
        assert SECRET not in "".join(said)
        assert "nolog" not in "".join(said)
    assert SECRET.encode() not in raw(tmp_path)


async def test_a_command_said_to_the_nick_is_the_command_and_one_without_arguments_ignores_prose(
    tmp_path: Path,
) -> None:
    async with answering("Both are fine.") as script, alice_in(tmp_path, script.url) as alice_there:
        alice, tendril = alice_there
        await alice.ask("Terra: .nolog", "NOTICE alice :.*I no longer store what you say")
        await alice.ask("Terra: .nolog off", "NOTICE alice :.*You are logged again")
        await alice.ask("Terra: .net or java?", "alice: Both are fine")
        assert "nolog" not in "".join(await texts(tendril))
        assert script.requests[0]["messages"][-1]["content"].endswith("alice asks: .net or java?")
        for prose in (
            ".clear as mud",
            ".version 2 is out",
            ".more beer please",
            ".stop it you two",
        ):
            await alice.say(ROOM, prose)
        await alice.ask(".clear", "alice: Forgotten: our conversation of 1 turn")
        await alice.say("Terra", ".version 2 is out")
        await alice.expect(r"PRIVMSG alice :\.version:|NOTICE alice :\.version:")


async def test_an_opt_out_survives_a_restart_and_bot_still_answers(tmp_path: Path) -> None:
    async with answering(f"It is {SECRET}.") as script:
        async with alice_in(tmp_path, script.url) as (alice, _):
            await alice.told(".nolog")
        async with alice_in(tmp_path, script.url) as (alice, _):
            await alice.ask(f".terrarium what is {SECRET}?", f"alice: It is {SECRET}")
            await alice.ask(".terrarium and now?", f"alice: It is {SECRET}")
    assert SECRET.encode() not in raw(tmp_path)


async def test_a_marked_line_is_neither_logged_nor_remembered(tmp_path: Path) -> None:
    async with answering("Fine.") as script, alice_in(tmp_path, script.url) as (alice, _):
        await alice.say(ROOM, f"[NoLog] {SECRET}")
        await alice.ask(f".terrarium {SECRET} [nolog]", "alice: Fine")
        await alice.ask(".terrarium and what did I say before?", "alice: Fine")
        assert SECRET not in str(script.requests[-1])
    assert SECRET.encode() not in raw(tmp_path)


async def test_what_an_opted_out_person_said_before_is_shown_to_no_model(tmp_path: Path) -> None:
    async with answering("Fine.") as script, alice_in(tmp_path, script.url) as (alice, tendril):
        await alice.say(ROOM, f"once I said {SECRET}")
        await alice.ask(".ping", "alice: pong")
        await tendril.services.medium.log.opt_outs.add(
            "irc", Identity("Alice", "alice", "127.0.0.1")
        )
        await alice.send("NICK bob")
        await alice.ask(".terrarium what was said?", "bob: Fine")
        assert SECRET not in str(script.requests[-1])


async def test_forget_me_asks_back_and_then_leaves_nothing(tmp_path: Path) -> None:
    said = f"You said {SECRET}."
    async with answering(said) as script, alice_in(tmp_path, script.url) as (alice, tendril):
        await alice.say(ROOM, f"my word is {SECRET}")
        await alice.ask(".terrarium what is my word?", f"alice: You said {SECRET}")
        assert "forget me" in await alice.told(".forget")
        asked = await alice.told(".forget me")
        assert "events of yours" in asked
        assert "alice!alice@" in asked or "alice!~alice@" in asked
        assert SECRET in "".join(await texts(tendril))
        assert "events of yours" in await alice.told(".forget me 000000")
        word = (await alice.told(".forget me")).split()[-1]
        assert "nothing about you called it" in await alice.told(f".forget it {word}")
        assert (await alice.told(f".forget me {word}")).startswith("Forgotten: ")
        assert SECRET.encode() not in raw(tmp_path)
        assert b"alice" not in "".join(await texts(tendril)).encode()
    with closing(connect(tmp_path / "irc.db")) as file:
        audit = file.execute("SELECT actor, action, target, reason FROM audit").fetchall()
    assert len(audit) == 1
    assert audit[0][:2] == ("", "forget")
    assert "alice" not in str(audit)


async def test_forget_me_ends_what_is_being_answered(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, alice_in(tmp_path, script.url) as (alice, tendril):
        script.hang("Well")
        await alice.say(ROOM, f".terrarium my word is {SECRET}: what is it?")
        await script.arrived()
        word = (await alice.told(".forget me")).split()[-1]
        assert (await alice.told(f".forget me {word}")).startswith("Forgotten: ")
        await script.client_gone()
        assert await tendril.conversations.turns(conversation_with("alice")) == []
    assert SECRET.encode() not in raw(tmp_path)


async def test_forget_me_reaches_what_was_made_of_it(tmp_path: Path) -> None:
    async with answering("ok") as script, alice_in(tmp_path, script.url) as (alice, tendril):
        script.summed = lambda _: f"alice said {SECRET}"
        script.call("remember", {"key": "word", "value": SECRET}).say("Sure.")
        await alice.ask(f".terrarium remember my word, {SECRET}", "alice: Sure")
        for _ in range(3):
            await alice.ask(".terrarium go on", "alice: ok")
        await kept_turns(tendril, conversation_with("alice"))
        await settled(tendril._worker, tendril.jobs)
        layers = await tendril.database.fetch_all(
            "SELECT DISTINCT layer FROM memories ORDER BY layer"
        )
        assert [row["layer"] for row in layers] == ["episode", "fact"]
        word = (await alice.told(".forget me")).split()[-1]
        assert (await alice.told(f".forget me {word}")).startswith("Forgotten: ")
        for table in ("memories", "memory_sources", "memory_rooms", "conversations"):
            assert await tendril.database.fetch_all(f"SELECT * FROM {table}") == []
        assert SECRET.encode() not in raw(tmp_path)
        await alice.ask(".terrarium what is my word?", "alice: ok")
        assert SECRET not in str(script.requests[-1])


async def test_somebody_else_under_the_nick_can_erase_nothing(tmp_path: Path) -> None:
    async with alice_in(tmp_path, NOBODY) as (alice, tendril):
        await alice.say(ROOM, f"hers: {SECRET}")
        await alice.ask(".ping", "alice: pong")
        await alice.send("QUIT")
        await alice.wait_closed()
        async with IrcClient(tendril.networks.settings.port, "alice") as thief:
            await thief.send("NICK alice")
            await thief.send("USER mallory 0 * :Mallory")
            await thief.expect(" (376|422) ")
            await thief.join(ROOM)
            answer = await thief.told(".forget me")
        found = await tendril.services.log.find(Query(scope=EVERYTHING, nick="alice", limit=100))
        assert any(SECRET in event.text for event in found)
        assert "1 event of yours" in answer or "I know of nothing" in answer


async def test_two_forget_commands_at_once_do_no_harm(tmp_path: Path) -> None:
    async with alice_in(tmp_path, NOBODY) as (alice, tendril):
        await alice.say(ROOM, "hm")
        word = (await alice.told(".forget me")).split()[-1]
        await asyncio.gather(*(alice.say(ROOM, f".forget me {word}") for _ in range(2)))
        await alice.expect("Forgotten: ")
        assert "alice: hm" not in await texts(tendril)
