"""What the documentation promises about who is who, on a network with services."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from re import escape, fullmatch

from harnesses.irc.questions.handler import STILL_AT_IT
from storage.chat_log.event import EVERYTHING
from storage.log import Query
from tests.kit.irc_client import IrcClient, irc_client
from tests.kit.irc_tendril import ROOM, conversation_with, irc_config, irc_tendril, kept_turns
from tests.kit.ircd import embedded_ircd, inspircd
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.services import services_network

NOBODY = "http://127.0.0.1:9"


async def told(client: IrcClient, words: str, target: str = "Terra") -> str:
    """Say `words` and return the text that the bot answers, said or as a notice."""
    await client.say(target, words)
    said = rf":Terra!\S+ (?:PRIVMSG|NOTICE) \S+ :(?!.*{escape(STILL_AT_IT)}$)(.*)$"
    return (await client.expect(said))[1]


async def renamed(client: IrcClient, nick: str) -> None:
    await client.send(f"NICK {nick}")
    await client.expect(f"NICK :?{nick}$")


async def test_the_agent_server_is_told_no_name_for_a_budget(tmp_path: Path) -> None:
    async with (
        inspircd() as ircd,
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
        await renamed(ada, "eve")
        await ada.say(ROOM, ".ask question 4?")
        await script.arrived(4)
    people = [headers["x-person"] for headers in script.headers]
    assert people[0] == people[2] == people[3] != people[1]
    assert len({headers["x-channel"] for headers in script.headers}) == 1
    for headers in script.headers:
        assert fullmatch(r"[0-9a-f]{16}", headers["x-person"])
        assert fullmatch(r"[0-9a-f]{16}", headers["x-channel"])


async def test_a_private_conversation_belongs_to_the_account_that_has_it_under_any_nick(
    tmp_path: Path,
) -> None:
    async with services_network(tmp_path) as network, network.running() as owner:
        config = irc_config(tmp_path, network.ircd.port, NOBODY)
        async with irc_tendril(config), irc_client(network.ircd.port, "mallory") as mallory:
            assert "tea is oolong" in await told(owner, ".remember tea oolong")
            await told(owner, "is oolong a green tea?")
            await renamed(owner, "elsewhere")
            assert "is oolong a green tea" in await told(owner, ".search oolong")
            await renamed(mallory, "Account")
            assert await told(mallory, ".recall") == "I remember no facts about you here."
            assert await told(mallory, ".search oolong") == "Nothing found."


@asynccontextmanager
async def impostor(port: int, nick: str) -> AsyncIterator[IrcClient]:
    """Connect somebody under a nick that others have had, with a user name of their own."""
    async with IrcClient(port, nick) as client:
        await client.send(f"NICK {nick}")
        await client.send("USER impostor 0 * :Somebody else")
        await client.expect(" 00[14] ")
        await client.settle()
        yield client


async def test_whoever_takes_a_nick_has_no_part_in_the_memory_of_its_owner_on_a_channel(
    tmp_path: Path,
) -> None:
    async with (
        embedded_ircd() as ircd,
        ScriptedOpenAI() as script,
        irc_tendril(irc_config(tmp_path, ircd.port, script.url)) as tendril,
    ):
        async with irc_client(ircd.port, "ada") as ada:
            await ada.join(ROOM)
            assert "tea is oolong" in await told(ada, ".remember tea oolong", ROOM)
            script.say("Noted.")
            assert "Noted" in await told(ada, ".ask is my door code 4711 good?", ROOM)
            await kept_turns(tendril, conversation_with("ada"))
        async with impostor(ircd.port, "ada") as mallory:
            await mallory.join(ROOM)
            assert "no facts about you" in await told(mallory, ".recall", ROOM)
            assert "nothing of yours" in await told(mallory, ".recall tea", ROOM)
            assert "has 0 turns" in " ".join(
                [
                    await told(mallory, ".memory", ROOM),
                    (await mallory.expect("NOTICE ada :(.*)$"))[1],
                ]
            )
            assert "0 turns" in await told(mallory, ".clear", ROOM)
            assert "nothing of yours" in await told(mallory, ".forget tea", ROOM)
            assert "black" in await told(mallory, ".remember tea black", ROOM)
            script.say("I cannot know.")
            await told(mallory, ".ask what was my code?", ROOM)
            asked = [m for m in script.requests[-1]["messages"] if m["role"] == "user"]
            assert len(asked) == 1
            own = (await told(mallory, ".forget me", ROOM)).rpartition(" ")[2]
            assert "Forgotten" in await told(mallory, f".forget me {own}", ROOM)
        async with irc_client(ircd.port, "ada") as ada:
            await ada.join(ROOM)
            assert "tea is oolong" in await told(ada, ".recall tea", ROOM)
            assert "1 turn" in await told(ada, ".clear", ROOM)


async def test_who_changes_nick_keeps_the_conversation_and_who_takes_the_old_one_gets_none(
    tmp_path: Path,
) -> None:
    async with (
        embedded_ircd() as ircd,
        irc_tendril(irc_config(tmp_path, ircd.port, NOBODY)),
        irc_client(ircd.port, "ada") as ada,
        irc_client(ircd.port, "mallory") as mallory,
    ):
        await ada.join(ROOM)
        await mallory.join(ROOM)
        assert "tea is oolong" in await told(ada, ".remember tea oolong", ROOM)
        await renamed(ada, "ada_away")
        assert "tea is oolong" in await told(ada, ".recall tea", ROOM)
        await renamed(mallory, "ada")
        assert "nothing of yours" in await told(mallory, ".recall tea", ROOM)
        assert "tea is mate" in await told(mallory, ".remember tea mate", ROOM)
        await renamed(mallory, "mallory")
        assert "tea is mate" in await told(mallory, ".recall tea", ROOM)
        await ada.settle()
        await renamed(ada, "ada")
        assert "tea is oolong" in await told(ada, ".recall tea", ROOM)
        await mallory.send("QUIT")
        await ada.expect(" QUIT ")
        async with impostor(ircd.port, "mallory") as other:
            await other.join(ROOM)
            assert "nothing of yours" in await told(other, ".recall tea", ROOM)


async def test_on_a_channel_memory_belongs_to_the_account_under_any_nick(tmp_path: Path) -> None:
    async with services_network(tmp_path) as network, network.running() as owner:
        config = irc_config(tmp_path, network.ircd.port, NOBODY)
        async with irc_tendril(config), irc_client(network.ircd.port, "mallory") as mallory:
            await owner.join(ROOM)
            await mallory.join(ROOM)
            assert "tea is oolong" in await told(owner, ".remember tea oolong", ROOM)
            await renamed(owner, "elsewhere")
            assert "tea is oolong" in await told(owner, ".recall tea", ROOM)
            await renamed(mallory, "Account")
            assert "nothing of yours" in await told(mallory, ".recall tea", ROOM)


async def test_an_opt_out_belongs_to_the_account_and_only_the_account_takes_it_back(
    tmp_path: Path,
) -> None:
    async with services_network(tmp_path) as network, network.running() as owner:
        config = irc_config(tmp_path, network.ircd.port, NOBODY)
        async with (
            irc_tendril(config) as tendril,
            irc_client(network.ircd.port, "mallory") as mallory,
        ):
            await owner.join(ROOM)
            await mallory.join(ROOM)
            assert "logged in to Account" in await told(owner, ".nolog", ROOM)
            await renamed(owner, "elsewhere")
            await owner.say(ROOM, "not kept 1")
            await owner.settle()
            await renamed(mallory, "Account")
            assert "Only whoever asked" in await told(mallory, ".nolog off", ROOM)
            await mallory.say(ROOM, "said by mallory")
            await mallory.settle()
            await owner.say(ROOM, "not kept 2")
            assert "logged again" in await told(owner, ".nolog off", ROOM)
            await owner.say(ROOM, "kept")
            await told(owner, ".ping", ROOM)
            log = tendril.services.log
            await log.flush()
            events = await log.find(Query(scope=EVERYTHING, limit=1_000))
    said = [event.text for event in events if not event.own]
    assert not [text for text in said if "not kept" in text]
    assert [text for text in said if "kept" in text or "mallory" in text] == [
        "said by mallory",
        "kept",
    ]
