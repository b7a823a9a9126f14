"""What the documentation promises about who is who, on a network with services."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from re import fullmatch

from storage.chat_log.event import EVERYTHING
from storage.log import Query
from tests.kit.irc_client import IrcClient, irc_client
from tests.kit.irc_tendril import ROOM, conversation_with, irc_config, irc_tendril, kept_turns
from tests.kit.ircd import embedded_ircd
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.services import services_network

NOBODY = "http://127.0.0.1:9"


async def test_the_agent_server_is_told_no_name_for_a_budget(tmp_path: Path) -> None:
    async with (
        embedded_ircd() as ircd,
        ScriptedOpenAI() as script,
        irc_tendril(irc_config(tmp_path, ircd.port, script.url)),
        irc_client(ircd.port, "ada") as ada,
        irc_client(ircd.port, "bob") as bob,
    ):
        await ada.join(ROOM)
        await bob.join(ROOM)
        for number, person in enumerate((ada, bob, ada), 1):
            await person.say(ROOM, f".ask question {number}?")
            await script.arrived(number)
        await ada.rename("eve")
        await ada.say(ROOM, ".ask question 4?")
        await script.arrived(4)
    people = [headers["x-person"] for headers in script.headers]
    assert people[0] == people[2] == people[3] != people[1]
    assert len({headers["x-channel"] for headers in script.headers}) == 1
    for headers in script.headers:
        assert fullmatch(r"[0-9a-f]{16}", headers["x-person"])
        assert fullmatch(r"[0-9a-f]{16}", headers["x-channel"])


@asynccontextmanager
async def impostor(port: int, nick: str) -> AsyncIterator[IrcClient]:
    """Connect somebody under a nick that others have had, with a user name of their own."""
    async with IrcClient(port, nick) as client:
        await client.send(f"NICK {nick}")
        await client.send("USER impostor 0 * :Somebody else")
        await client.expect(" 00[14] ")
        await client.settle()
        yield client


async def test_whoever_takes_a_nick_has_no_part_in_its_owners_memory(tmp_path: Path) -> None:
    async with (
        embedded_ircd() as ircd,
        ScriptedOpenAI() as script,
        irc_tendril(irc_config(tmp_path, ircd.port, script.url)) as tendril,
    ):
        async with irc_client(ircd.port, "ada") as ada:
            await ada.join(ROOM)
            assert "tea is oolong" in await ada.answer_to(".remember tea oolong", ROOM)
            script.say("Noted.")
            assert "Noted" in await ada.answer_to(".ask is my door code 4711 good?", ROOM)
            await kept_turns(tendril, conversation_with("ada"))
        async with impostor(ircd.port, "ada") as mallory:
            await mallory.join(ROOM)
            assert "no facts about you" in await mallory.answer_to(".recall", ROOM)
            assert "nothing about you" in await mallory.answer_to(".recall tea", ROOM)
            about = [await mallory.answer_to(".memory", ROOM)]
            about.append((await mallory.expect("NOTICE ada :(.*)$"))[1])
            assert "has 0 turns" in " ".join(about)
            assert "0 turns" in await mallory.answer_to(".clear", ROOM)
            assert "nothing about you" in await mallory.answer_to(".forget tea", ROOM)
            assert "black" in await mallory.answer_to(".remember tea black", ROOM)
            script.say("I cannot know.")
            await mallory.answer_to(".ask what was my code?", ROOM)
            asked = [m for m in script.requests[-1]["messages"] if m["role"] == "user"]
            assert len(asked) == 1
            own = (await mallory.answer_to(".forget me", ROOM)).rpartition(" ")[2]
            assert "Forgotten" in await mallory.answer_to(f".forget me {own}", ROOM)
        async with irc_client(ircd.port, "ada") as ada:
            await ada.join(ROOM)
            assert "tea is oolong" in await ada.answer_to(".recall tea", ROOM)
            assert "1 turn" in await ada.answer_to(".clear", ROOM)


async def test_whoever_changes_nick_keeps_the_conversation_for_themselves(tmp_path: Path) -> None:
    async with (
        embedded_ircd() as ircd,
        irc_tendril(irc_config(tmp_path, ircd.port, NOBODY)),
        irc_client(ircd.port, "ada") as ada,
        irc_client(ircd.port, "mallory") as mallory,
    ):
        await ada.join(ROOM)
        await mallory.join(ROOM)
        assert "tea is oolong" in await ada.answer_to(".remember tea oolong", ROOM)
        await ada.rename("ada_away")
        assert "tea is oolong" in await ada.answer_to(".recall tea", ROOM)
        await mallory.rename("ada")
        assert "nothing about you" in await mallory.answer_to(".recall tea", ROOM)
        assert "tea is mate" in await mallory.answer_to(".remember tea mate", ROOM)
        await mallory.rename("mallory")
        assert "tea is mate" in await mallory.answer_to(".recall tea", ROOM)
        await ada.settle()
        await ada.rename("ada")
        assert "tea is oolong" in await ada.answer_to(".recall tea", ROOM)
        await mallory.send("QUIT")
        await ada.expect(" QUIT ")
        async with impostor(ircd.port, "mallory") as other:
            await other.join(ROOM)
            assert "nothing about you" in await other.answer_to(".recall tea", ROOM)


async def test_memory_and_an_opt_out_belong_to_the_account_under_any_nick(tmp_path: Path) -> None:
    async with (
        services_network(tmp_path) as network,
        network.running() as owner,
        irc_tendril(irc_config(tmp_path, network.ircd.port, NOBODY)) as tendril,
        irc_client(network.ircd.port, "mallory") as mallory,
    ):
        for client in (owner, mallory):
            await client.join(ROOM)
        for target in ("Terra", ROOM):
            assert "tea is oolong" in await owner.answer_to(".remember tea oolong", target)
        await owner.answer_to("is oolong a green tea?")
        await owner.rename("elsewhere")
        assert "tea is oolong" in await owner.answer_to(".recall tea", ROOM)
        assert "is oolong a green tea" in await owner.answer_to(".search oolong")
        await mallory.rename("Account")
        assert await mallory.answer_to(".recall") == "I remember no facts about you here."
        assert await mallory.answer_to(".search oolong") == "Nothing found."
        assert "nothing about you" in await mallory.answer_to(".recall tea", ROOM)
        assert "logged in to Account" in await owner.answer_to(".nolog", ROOM)
        await owner.rename("away")
        await owner.say(ROOM, "not kept 1")
        await owner.settle()
        await mallory.rename("elsewhere")
        assert "Only the person who asked" in await mallory.answer_to(".nolog off", ROOM)
        await mallory.say(ROOM, "said by mallory")
        await mallory.settle()
        await owner.say(ROOM, "not kept 2")
        assert "logged again" in await owner.answer_to(".nolog off", ROOM)
        await owner.say(ROOM, "kept")
        await owner.ping()
        await tendril.services.log.flush()
        events = await tendril.services.log.find(Query(scope=EVERYTHING, limit=1_000))
    said = [event.text for event in events if not event.own]
    assert not [text for text in said if "not kept" in text]
    assert [text for text in said if text in ("kept", "said by mallory")] == [
        "said by mallory",
        "kept",
    ]
