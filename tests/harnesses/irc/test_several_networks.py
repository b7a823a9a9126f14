"""One process on several networks at once, and what a person who waits long is told."""

from __future__ import annotations

import re
from pathlib import Path

from llm.prompt.log_window import PROGRESS
from storage.chat_log.event import PUBLIC, SPOKEN
from storage.db.database import Database
from storage.log import ChatLog, Query
from storage.settings import log_path
from tests.kit.irc_client import irc_client
from tests.kit.irc_tendril import ROOM, irc_config, irc_tendril
from tests.kit.ircd import inspircd, ngircd
from tests.kit.openai_script import ScriptedOpenAI


async def test_two_networks_are_answered_each_on_its_own_and_one_that_dies_stops_no_other(
    tmp_path: Path,
) -> None:
    async with inspircd() as one, ngircd() as two, ScriptedOpenAI() as script:
        networks = {
            name: {"server": "127.0.0.1", "port": ircd.port, "lines_per_second": 100}
            for name, ircd in (("one", one), ("two", two))
        }
        config = irc_config(tmp_path, one.port, script.url, irc={"networks": networks})
        async with irc_tendril(config), irc_client(two.port, "bob") as bob:
            await bob.join(ROOM)
            async with irc_client(one.port, "alice") as alice:
                await alice.join(ROOM)
                await alice.say(ROOM, "the key is under the mat")
                script.say("To alice.").say("To bob.").say("To bob again.")
                await alice.say(ROOM, ".terrarium where is the key?")
                await alice.expect(rf"PRIVMSG {ROOM} :alice: To alice\.$")
                await bob.say(ROOM, ".terrarium where is the key?")
                await bob.expect(rf"PRIVMSG {ROOM} :bob: To bob\.$")
                assert "under the mat" in str(script.requests[0])
                assert "under the mat" not in str(script.requests[1])
                await one.kill()
                await alice.wait_closed()
            await bob.say(ROOM, ".terrarium and now?")
            await bob.expect(rf"PRIVMSG {ROOM} :bob: To bob again\.$")
    async with Database.open(log_path(config)) as database:
        events = await ChatLog(database).find(Query(scope=PUBLIC, types=SPOKEN))
    said = {(event.network, event.nick) for event in events}
    assert said == {("one", "alice"), ("one", "Terra"), ("two", "bob"), ("two", "Terra")}


async def test_who_waits_long_is_told_so_once_and_nobody_else_is(tmp_path: Path) -> None:
    async with inspircd() as ircd, ScriptedOpenAI() as script:
        config = irc_config(tmp_path, ircd.port, script.url, irc={"progress_after": 0.2})
        async with irc_tendril(config), irc_client(ircd.port, "alice") as alice:
            await alice.join(ROOM)
            script.hang("At last.").say("Too.")
            await alice.say(ROOM, ".terrarium what takes so long?")
            await script.arrived(1)
            await alice.say(ROOM, ".terrarium and this?")
            await alice.expect(rf"PRIVMSG {ROOM} :alice: {re.escape(PROGRESS)}$")
            script.release()
            await alice.expect(r":alice: At last\.$")
            await alice.expect(r":alice: Too\.$")
            assert sum(PROGRESS in line for line in alice.lines) == 1
