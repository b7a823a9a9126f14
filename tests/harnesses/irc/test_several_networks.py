"""One process on several networks at once, and what a person who waits long is told."""

from __future__ import annotations

from pathlib import Path

from storage.chat_log.event import PUBLIC, SPOKEN
from storage.db.database import Database
from storage.log import ChatLog, Query
from storage.settings import log_path
from tests.kit.irc_client import irc_member
from tests.kit.irc_tendril import ROOM, irc_config, irc_tendril
from tests.kit.ircd import embedded_ircd, ngircd
from tests.kit.openai_script import ScriptedOpenAI


async def test_two_networks_are_answered_each_on_its_own_and_one_that_dies_stops_no_other(
    tmp_path: Path,
) -> None:
    async with embedded_ircd() as one, ngircd() as two, ScriptedOpenAI() as script:
        networks = {
            name: {"server": "127.0.0.1", "port": ircd.port, "lines_per_second": 100}
            for name, ircd in (("one", one), ("two", two))
        }
        config = irc_config(tmp_path, one.port, script.url, irc={"networks": networks})
        async with irc_tendril(config), irc_member(two.port, "bob") as bob:
            async with irc_member(one.port, "alice") as alice:
                await alice.say(ROOM, "the key is under the mat")
                script.say("To alice.").say("To bob.").say("To bob again.")
                await alice.say(ROOM, ".terrarium where is the key?")
                await alice.expect(rf"PRIVMSG {ROOM} :alice: To alice\.$")
                await bob.ask(".terrarium where is the key?", rf"PRIVMSG {ROOM} :bob: To bob\.$")
                assert "under the mat" in str(script.requests[0])
                assert "under the mat" not in str(script.requests[1])
                await one.kill()
                await alice.wait_closed()
            await bob.ask(".terrarium and now?", rf"PRIVMSG {ROOM} :bob: To bob again\.$")
    async with Database.open(log_path(config)) as database:
        events = await ChatLog(database).find(Query(scope=PUBLIC, types=SPOKEN))
    said = {(event.network, event.nick) for event in events}
    assert said == {("one", "alice"), ("one", "Terra"), ("two", "bob"), ("two", "Terra")}
