"""What people can type in a channel or in private, and what they may see from there."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from structlog.testing import capture_logs

from harnesses.core.tendril.status import examine_process, read_report
from storage.chat_log.event import Place
from storage.db.database import Database
from storage.queues.outbox import Outbox
from tests.kit.data_files import outbox_path
from tests.kit.irc_client import irc_member
from tests.kit.irc_scene import NOBODY, alice_in, scripted_room
from tests.kit.irc_tendril import (
    ROOM,
    conversation_with,
    irc_config,
    irc_tendril,
    kept_turns,
    logged,
)
from tests.kit.ircd import embedded_ircd
from tests.kit.openai_script import Answer, ScriptedOpenAI
from tests.kit.patience import PATIENCE
from tests.kit.serving import serving

OTHER = "#other"
USUAL = {"lines_per_second": 1, "person_per_minute": 60}


async def test_every_command_answers(tmp_path: Path) -> None:
    zone = "Asia/Kolkata"
    async with alice_in(tmp_path, NOBODY, agent={"timezone": zone}) as (alice, _):
        await alice.say(ROOM, "the wiki moved to port 8443")
        await alice.ask(".search nothing like this", "alice: Nothing found")
        found = await alice.reply_to(".search WIKI port")
        assert found.endswith("the wiki moved to port 8443")
        assert "alice" not in found  # a quoted nick must not highlight its owner
        said = datetime.fromisoformat(found[1:17]).replace(tzinfo=ZoneInfo(zone))
        assert abs(datetime.now(UTC) - said) < timedelta(hours=1)
        copied = found.split("<")[1].split(">")[0]
        assert await alice.reply_to(f".search wiki from:{copied}") == found
        assert (await alice.reply_to(".stats")).startswith("5 lines by 1 person since 20")
        assert await alice.reply_to(".who") == "2 here: a\u200blice, T\u200berra"
        assert await alice.reply_to(".clear") == "Forgotten: our conversation of 0 turns."
        assert await alice.reply_to(".more") == "There is no more."
        assert await alice.reply_to(".ping") == "pong"
        assert re.fullmatch(r"Terrarium [\d.]+", await alice.reply_to(".version"))
        assert "My model is not reachable at the moment" in await alice.reply_to(".about model")
        assert (await alice.reply_to(".help")).startswith(".terrarium .ask .search ")
        assert await alice.reply_to(".help search") == ".search WORDS: find lines of this channel"
        assert await alice.reply_to(".help .PING") == ".ping: check that I am up"
        await alice.say(ROOM, ".help kick")
        await alice.expect(
            r"NOTICE alice :\[#terrarium\] There is no command kick; \.help lists them"
        )
        assert await alice.reply_to(".terrarium") == "Ask me something: .terrarium QUESTION"
        assert await alice.reply_to(".search") == "Search for what? .search WORDS"
        await alice.say("Terra", ".who")
        await alice.expect(r":Terra!\S+ PRIVMSG alice :Only you and I are here\.$")


async def test_a_line_that_only_looks_like_a_command_is_left_alone(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, alice_in(tmp_path, script.url) as (alice, _):
        for line in ("...", ".5 is a half", ".unknown thing", "what does .ping do", "Terra rules"):
            await alice.say(ROOM, line)
        await alice.send(f"NOTICE {ROOM} :.ping")
        await alice.ping()
        replies = [line for line in alice.lines if line.startswith(":Terra!") and "PRIVMSG" in line]
        assert len(replies) == 1
        await alice.say(ROOM, "the cellar keys hang in the hall")
        await alice.reply_to("Terra: who has the cellar keys?")
        await alice.reply_to(".ask where are the cellar keys")
        found = await alice.reply_to(".search cellar keys")  # and no question to the bot
        assert found.endswith("the cellar keys hang in the hall")
        assert sum("who has the cellar keys" in line for line in alice.lines) == 0


async def test_without_the_agent_server_the_log_goes_on_and_answers(tmp_path: Path) -> None:
    async with alice_in(tmp_path, NOBODY) as (alice, tendril):
        answer = await alice.reply_to(".terrarium how are you?")
        assert answer == "My model is not reachable at the moment; please ask again in a minute."
        await alice.say(ROOM, "the greenhouse pump starts at six")
        answer = await alice.reply_to(".terrarium when does the greenhouse pump start?")
        assert answer.endswith("<a\u200blice> the greenhouse pump starts at six")
    said = await logged(tendril.config)
    assert ("PRIVMSG", "alice", "the greenhouse pump starts at six") in said


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (401, "My key is rejected; please tell my operator."),
        (503, "My model is misconfigured; please tell my operator."),
    ],
)
async def test_what_only_the_owner_can_mend_is_told_to_the_owner_and_no_falsehood_to_people(
    tmp_path: Path, status: int, told: str
) -> None:
    async def refuse(_: Request) -> Response:
        problem = {"message": "check MODEL_UPSTREAM_KEY", "code": "engine_misconfigured"}
        return JSONResponse({"error": problem}, status)

    site = Starlette(routes=[Route("/{path:path}", refuse, methods=["GET", "POST"])])
    advice = "AGENT_API_KEY" if status == 401 else "MODEL_UPSTREAM_KEY"
    with capture_logs() as log:
        async with serving(site) as url, alice_in(tmp_path, url) as (alice, _):
            assert await alice.reply_to(".terrarium how are you?") == told
            found = read_report(tmp_path, "irc")
            assert found is not None
            assert advice in found.trouble
            assert not examine_process(tmp_path, "irc").ok
    entries = [entry for entry in log if entry["event"] == "agent.not_usable"]
    assert [advice in entry["advice"] for entry in entries] == [True]
    assert {entry["log_level"] for entry in entries} == {"error"}


async def test_four_quick_questions_of_one_person_each_get_an_answer(tmp_path: Path) -> None:
    asked = {"France": "Paris.", "Spain": "Madrid.", "Japan": "Tokyo.", "Peru": "Lima."}

    def answer(body: dict[str, Any]) -> str:
        question = str(body["messages"][-1]["content"])
        return next(city for country, city in asked.items() if country in question)

    async with ScriptedOpenAI() as script:
        script.default = answer
        async with alice_in(tmp_path, script.url) as (alice, _):
            for country in asked:
                await alice.say(ROOM, f".terrarium what is the capital of {country}?")
            for city in asked.values():
                await alice.expect(rf"PRIVMSG {ROOM} :alice: (?:\(to: .*\) )?{city}")
    assert len(script.requests) == 4


async def test_the_bot_is_asked_by_its_nick_and_answers_without_a_second(tmp_path: Path) -> None:
    async with ScriptedOpenAI() as script, alice_in(tmp_path, script.url) as (alice, tendril):
        script.answer(Answer("Alice: hello.", reasoning="secret plan")).say("alice:")
        assert await alice.reply_to("@Terra who are the frogs?") == "hello."
        [turn] = await kept_turns(tendril, conversation_with("alice"))
        assert turn.messages[-1]["reasoning_content"] == "secret plan"
        assert await alice.reply_to("terra: how are you?") == "alice:"
        asked = script.requests[1]["messages"][-1]["content"]
        assert asked.endswith("alice asks: how are you?")
        assert await alice.reply_to("@Terra") == "Ask me something: .terrarium QUESTION"
        await alice.say(ROOM, "@Terraform is a tool")
        assert await alice.reply_to(".ping") == "pong"
        assert not any("secret" in line for line in alice.lines)
    assert len(script.requests) == 2


async def test_answers_of_the_model_bear_the_mark_once_and_no_other_reply(tmp_path: Path) -> None:
    mark = {"mark": "🤖 "}
    async with scripted_room(tmp_path, "alice", irc=mark) as (script, _, (alice,)):
        script.say("Yes.").say("🤖 Once.").say("/me nods")
        assert await alice.reply_to(".terrarium do frogs sing?") == "🤖 Yes."
        assert await alice.reply_to(".terrarium do toads sing?") == "🤖 Once."
        await alice.ask(".terrarium do newts nod?", rf"PRIVMSG {ROOM} :\x01ACTION 🤖 nods\x01$")
        await alice.ping()


async def test_a_second_start_remembers_the_conversation(tmp_path: Path) -> None:
    async with embedded_ircd() as ircd, ScriptedOpenAI() as script:
        config = irc_config(tmp_path, ircd.port, script.url)
        script.say("Noted.").say("Tea.")
        async with irc_member(ircd.port, "alice") as alice:
            async with irc_tendril(config) as tendril:
                await alice.reply_to(".terrarium I drink tea")
                assert len(await kept_turns(tendril, conversation_with("alice"))) == 1
            async with irc_tendril(config):
                assert await alice.reply_to(".ask what do I drink?") == "Tea."
        first, second = (request["messages"] for request in script.requests)
        assert second[0] == first[0]  # the engine can use its cache
        assert "<alice> .terrarium I drink tea\n" in second[1]["content"]
        assert "<Terra> alice: Noted.\n" in second[1]["content"]


async def test_a_question_sees_its_own_channel_only(tmp_path: Path) -> None:
    irc = {"channels": [ROOM, OTHER]}
    async with scripted_room(tmp_path, "mallory", "alice", irc=irc) as (script, _, people):
        mallory, alice = people
        await alice.send(f"PART {ROOM}")
        await alice.join(OTHER)
        await alice.say(OTHER, "the secret is plum")
        await alice.ask(".search secret", r"PRIVMSG alice :Nothing found\.$", room="Terra")
        await alice.ask(".ping", "pong", room=OTHER)
        assert await mallory.reply_to(".search secret") == "Nothing found."
        script.call("search_log", {"query": "the secret is"}).say("I know no secret.")
        await mallory.reply_to(".terrarium what is the secret?")
        assert "plum" not in json.dumps(script.requests)
        [result] = [m for m in script.requests[1]["messages"] if m["role"] == "tool"]
        wrapped = '<tool_result tool="search_log">\nno line has secret\n</tool_result>'
        assert result["content"] == wrapped


async def test_channels_of_one_group_may_search_each_other(tmp_path: Path) -> None:
    irc = {"channels": [ROOM, OTHER], "channel_groups": [[ROOM, OTHER]]}
    async with alice_in(tmp_path, NOBODY, irc=irc) as (alice, _):
        await alice.join(OTHER)
        await alice.say(OTHER, "plums are ripe")
        assert (await alice.reply_to(".search plums")).endswith("plums are ripe")


async def test_a_private_message_is_a_question_and_stays_private(tmp_path: Path) -> None:
    async with scripted_room(tmp_path, "alice", "bob") as (script, _, (alice, bob)):
        script.say("Your PIN is safe.")
        await alice.say("Terra", "my pin is 4711")
        await alice.expect(r":Terra!\S+ PRIVMSG alice :Your PIN is safe\.$")
        assert await bob.reply_to(".search pin") == "Nothing found."
        await bob.ask(".search pin", r"PRIVMSG bob :Nothing found\.$", room="Terra")
        script.say("No idea.")
        await bob.reply_to(".terrarium what is the pin of alice?")
        assert "4711" not in json.dumps(script.requests[1])


async def test_a_message_from_another_tendril_is_said_once(tmp_path: Path) -> None:
    async with embedded_ircd() as ircd:
        config = irc_config(tmp_path, ircd.port, NOBODY)
        async with (
            irc_member(ircd.port, "alice") as alice,
            Database.open(outbox_path(tmp_path)) as database,
        ):
            outbox = Outbox(database)
            await outbox.put("digest 1", Place("", ROOM), "Today:\nnothing")
            await outbox.put("digest 1", Place("", ROOM), "Today:\nnothing")
            async with irc_tendril(config):
                await alice.expect(rf"PRIVMSG {ROOM} :Today:$")
                await alice.expect(rf"PRIVMSG {ROOM} :nothing$")
                await alice.reply_to(".ping")
                async with asyncio.timeout(PATIENCE):
                    while await outbox.list_unsent():  # noqa: ASYNC110 - noted after it was said
                        await asyncio.sleep(0.05)
            said = [line for line in alice.lines if line.endswith(":Today:")]
            assert len(said) == 1


async def test_one_who_floods_questions_does_not_crowd_out_the_others(tmp_path: Path) -> None:
    async with scripted_room(tmp_path, "mallory", "alice", irc=USUAL) as (
        script,
        _,
        (mallory, alice),
    ):
        for number in range(1_000):
            await mallory.say(ROOM, f".terrarium {number}")
        await mallory.settle()
        await alice.ask(".terrarium and me?", rf"PRIVMSG {ROOM} :alice: ok$")
        before_hers = [line for line in alice.lines if "PRIVMSG #terrarium :mallory: " in line]
        assert len(before_hers) <= 10
        await mallory.expect(rf"PRIVMSG {ROOM} :mallory: ok$")
        asked = str(script.requests)
        assert "mallory asks: 0" in asked
        assert "mallory asks: 999" not in asked
        told = [line for line in mallory.lines if "Slow down, please" in line]
        assert len(told) == 1
        assert " NOTICE mallory :" in told[0]
        assert not any("Slowly" in line for line in alice.lines)
