"""Who is who on a real network: a nick that changes hands takes nothing along."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from harnesses.irc.tendril import IrcTendril
from storage.chat_log.event import EVERYTHING, Event
from storage.log import Query
from tests.kit.clock import ManualClock
from tests.kit.command import terrarium
from tests.kit.irc_client import IrcClient, irc_client
from tests.kit.irc_tendril import ROOM, irc_config, irc_tendril
from tests.kit.ircd import SERVERS, Ircd, embedded_ircd
from tests.kit.openai_script import Answer, ScriptedOpenAI

PIN = "my bank pin is 4711 and I want to leave Contoso"
LONG = "\n".join(f"line {number} of zzsecretlong" for number in range(9))
BRIDGE: dict[str, Any] = {"relays": ["bridge!*@*"]}


@asynccontextmanager
async def bot(
    data: Path, *, server: str = "embedded", **irc: Any
) -> AsyncIterator[tuple[IrcTendril, ScriptedOpenAI, Ircd]]:
    """The bot on a network, with a scripted model."""
    async with ScriptedOpenAI() as script, SERVERS[server]() as ircd:
        config = irc_config(data, ircd.port, script.url, irc=irc)
        async with irc_tendril(config) as tendril:
            yield tendril, script, ircd


async def events_of(tendril: IrcTendril) -> list[Event]:
    await tendril.services.log.flush()
    return await tendril.services.log.find(Query(scope=EVERYTHING, limit=1_000))


async def test_whoever_takes_a_nick_gets_an_empty_room_of_their_own(tmp_path: Path) -> None:
    async with bot(tmp_path, person_per_minute=600) as (tendril, script, ircd):
        async with irc_client(ircd.port, "ada") as ada:
            script.say("Noted.")
            assert await ada.answer_to(PIN) == "Noted."
            script.say(LONG)
            await ada.say("Terra", "tell me a long story")
            await ada.expect("more lines: .more")
            assert "your tea is oolong" in await ada.answer_to(".remember tea oolong")
            assert PIN in await ada.answer_to(".search bank pin")
            await ada.quit()
        async with irc_client(ircd.port, "mallory") as mallory:
            await mallory.rename("ada")
            for words in (".search pin", ".search bank", ".search leave", ".recall tea"):
                assert "4711" not in await mallory.answer_to(words)
            assert await mallory.answer_to(".more") == "There is no more."
            assert await mallory.answer_to(".recall") == "I remember no facts about you here."
            assert "has 0 turns" in await memory_of(mallory)
            assert (await mallory.answer_to(".stop")).startswith("There is nothing to stop")
            assert "0 turns" in await mallory.answer_to(".clear")
            before = len(script.requests)
            script.reply(search_all).say("I do not know.")
            assert await mallory.answer_to("what did I tell you before?") == "I do not know."
            prompts = json.dumps(script.requests[before:])
            seen = "\n".join(mallory.lines) + prompts
            for secret in ("4711", "Contoso", "zzsecretlong", "oolong"):
                assert secret not in seen
            await mallory.quit()
        async with irc_client(ircd.port, "ada") as ada:
            assert PIN in await ada.answer_to(".search bank pin")
            assert "zzsecretlong" in await ada.answer_to(".more")
        private = {event.channel for event in await events_of(tendril) if event.private}
        assert len(private) == 2


async def memory_of(client: IrcClient) -> str:
    """What `.memory` tells of the conversation."""
    await client.say("Terra", ".memory")
    return (await client.expect(r":Terra!\S+ NOTICE \S+ :(.*turns?, .*)$"))[1]


def search_all(body: dict[str, Any]) -> Answer:
    """A model that looks for all it can find."""
    names = [tool["function"]["name"] for tool in body.get("tools", [])]
    wanted = {"search_log": '{"query": "pin"}', "recall": '{"key": "tea"}'}
    return Answer(calls=tuple((name, wanted[name]) for name in names if name in wanted))


async def test_a_private_room_is_exported_with_private_only(tmp_path: Path) -> None:
    async with bot(tmp_path) as (_, script, ircd), irc_client(ircd.port, "ada") as ada:
        script.say("Noted.")
        await ada.answer_to(PIN)
    shown = await terrarium("logs", "export", "--data", ".", cwd=tmp_path)
    assert PIN not in shown.out
    whole = await terrarium("logs", "export", "--private", "--data", ".", cwd=tmp_path)
    [line] = [json.loads(line) for line in whole.out.splitlines() if PIN in line]
    assert line["channel"] == "ada!ada@127.0.0.1"
    assert line["private"] is True


async def test_a_private_reminder_is_told_to_its_owner_and_not_to_the_nick(tmp_path: Path) -> None:
    noon, minute = datetime(2026, 5, 1, 12, tzinfo=UTC), timedelta(minutes=1)
    clock = ManualClock(noon)
    async with ScriptedOpenAI() as script, embedded_ircd() as ircd:
        config = irc_config(tmp_path, ircd.port, script.url)
        async with irc_tendril(config, clock):
            async with irc_client(ircd.port, "ada") as ada:
                assert "I will remind you" in await ada.answer_to(".remind 10m call the clinic")
                await clock.asleep_until(noon + 10 * minute)
                await ada.quit()
            async with irc_client(ircd.port, "mallory") as mallory:
                await mallory.rename("ada")
                for minutes in (10, 12):
                    await clock.set(noon + minutes * minute)
                    await clock.asleep_until(noon + (minutes + 2) * minute)  # looks again then
                await mallory.settle()
                assert "clinic" not in "\n".join(mallory.lines)
                await mallory.quit()
            async with irc_client(ircd.port, "ada") as ada:
                await clock.set(noon + 14 * minute)
                await ada.expect("PRIVMSG ada :reminder.*call the clinic")


async def test_an_opt_out_cannot_be_taken_over_or_taken_back_by_others(tmp_path: Path) -> None:
    async with bot(tmp_path, **BRIDGE) as (tendril, _, ircd):
        async with irc_client(ircd.port, "ada") as ada:
            await ada.join(ROOM)
            assert "I no longer store what you say" in await ada.answer_to(".nolog", ROOM)
            async with irc_client(ircd.port, "bridge") as bridge:
                await bridge.join(ROOM)
                for words in (".nolog off", ".nolog", "Terra: nolog off"):
                    answer = await bridge.answer_to(f"<ada> {words}", ROOM)
                    assert "I cannot tell who you are" in answer
            await ada.say(ROOM, "hers, not kept 1")
            await ada.quit()
        async with irc_client(ircd.port, "mallory") as mallory:
            await mallory.rename("ada")
            await mallory.join(ROOM)
            await mallory.say(ROOM, "mallory's own line")
            await mallory.answer_to(".nolog off", ROOM)
            await mallory.answer_to(".nolog", ROOM)
            await mallory.answer_to(".nolog off", ROOM)
            await mallory.quit()
        async with irc_client(ircd.port, "ada") as ada:
            await ada.join(ROOM)
            await ada.say(ROOM, "hers, not kept 2")
            assert "logged again" in await ada.answer_to(".nolog off", ROOM)
            await ada.say(ROOM, "hers, kept")
            await ada.answer_to(".ping", ROOM)
        said = [event.text for event in await events_of(tendril)]
        assert not [text for text in said if "not kept" in text]
        assert "mallory's own line" in said
        assert "hers, kept" in said


async def test_words_for_operators_stay_among_operators(tmp_path: Path) -> None:
    async with (
        bot(tmp_path, server="inspircd") as (tendril, script, ircd),
        irc_client(ircd.port, "op") as op,
        irc_client(ircd.port, "bob") as bob,
    ):
        await op.join("#c")
        tendril.networks["irc"].join("#c")
        await op.expect(r":Terra!\S+ JOIN")
        await op.send("MODE #c +o Terra")
        await op.expect("MODE #c .*o.*Terra")
        await bob.join("#c")
        await op.say("@#c", "ops only: the secret word is swordfish")
        script.say("It is swordfish.")
        await op.say("@#c", ".terrarium what is the word?")
        await op.expect(r":Terra!\S+ PRIVMSG @#c :op: It is swordfish")
        assert "swordfish" in json.dumps(script.requests[-1])
        assert "swordfish" in await op.answer_to(".search sword*", "@#c")
        await op.say("@#c", "we talk among us")  # and nobody asks the bot
        assert await bob.answer_to(".search sword*", "#c") == "bob: Nothing found."
        script.say("Nothing.")
        await bob.say("#c", ".terrarium what did they say before me?")
        await bob.expect("bob: Nothing")
        assert "swordfish" not in json.dumps(script.requests[-1])
        assert "swordfish" not in "\n".join(bob.lines)
        assert len(script.requests) == 2
        places = {e.channel for e in await events_of(tendril) if "swordfish" in e.text}
        assert places == {"@#c"}
    shown = await terrarium("logs", "export", "--data", ".", cwd=tmp_path)
    assert "swordfish" not in shown.out


async def test_a_relay_speaks_for_people_on_channels_only(tmp_path: Path) -> None:
    async with (
        bot(tmp_path, channels=[ROOM, "#other"], **BRIDGE) as (tendril, _, ircd),
        irc_client(ircd.port, "bridge") as bridge,
        irc_client(ircd.port, "boss") as boss,
    ):
        await boss.join("#other")
        await boss.say("#other", "the merger is on Monday")
        await bridge.join(ROOM)
        for nick in ("#other", "insider,boss", "boss", ":x", "boss!u@h", "*status"):
            await bridge.say("Terra", f"<{nick}> .search merger")
            await bridge.say("Terra", f"<{nick}> .ping")
            await bridge.say(ROOM, f"<{nick}> .ping")
        await bridge.say(ROOM, "<boss> .ping")
        await bridge.expect(rf"PRIVMSG {ROOM} :boss: pong")
        await bridge.say(ROOM, "<zoe> .ping")
        await bridge.expect(rf"PRIVMSG {ROOM} :zoe: pong")
        await boss.settle()
        replies = [line for line in bridge.lines + boss.lines if line.startswith(":Terra!")]
        said = [line for line in replies if " PRIVMSG " in line or " NOTICE " in line]
        assert [line.partition(" :")[2] for line in said] == [
            "boss: pong",
            "boss: pong",
            "zoe: pong",
        ]
        speakers = {event.nick for event in await events_of(tendril)}
        assert not speakers & {"#other", "insider,boss", ":x", "boss!u@h", "*status"}
