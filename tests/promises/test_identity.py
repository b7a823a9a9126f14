"""What the documentation promises about who is who, on a network with services."""

from __future__ import annotations

from pathlib import Path
from re import escape, fullmatch

from harnesses.irc.questions.handler import STILL_AT_IT
from storage.chat_log.event import EVERYTHING
from storage.log import Query
from tests.kit.irc_client import IrcClient, irc_client
from tests.kit.irc_tendril import ROOM, irc_config, irc_tendril
from tests.kit.ircd import inspircd
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
    await client.expect(f"NICK :?{nick}")


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
