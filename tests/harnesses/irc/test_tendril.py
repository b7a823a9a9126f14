"""The IRC tendril on real IRC servers, its model a scripted one where exact words matter."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from storage.chat_log.event import PUBLIC, SPOKEN
from storage.db.database import Database
from storage.log import ChatLog, Query
from storage.settings import log_path
from tests.kit.irc_client import irc_client
from tests.kit.irc_scene import NOBODY, room, scripted_room
from tests.kit.irc_tendril import ROOM, irc_config, irc_tendril, logged
from tests.kit.ircd import embedded_ircd
from tests.kit.openai_script import ScriptedOpenAI
from tests.kit.patience import until


async def test_a_question_is_answered_from_the_lines_before_it(tmp_path: Path) -> None:
    async with scripted_room(tmp_path, "alice", "bob") as (script, _, (alice, bob)):
        await bob.say(ROOM, "the deploy is at nine")
        await bob.settle()
        script.say("At nine, says bob.")
        await alice.say(ROOM, ".terrarium when is the deploy?")
        await alice.expect(r":Terra!\S+ PRIVMSG #terrarium :alice: At nine, says bob\.$")
        [system, asked] = script.requests[0]["messages"]
        assert "Terra" in system["content"]
        assert ROOM in system["content"]
        assert "<bob> the deploy is at nine\n" in asked["content"]
        assert asked["content"].count("when is the deploy?") == 1
        assert asked["content"].count("alice asks:") == 1


async def test_every_kind_of_event_is_logged_in_order(tmp_path: Path) -> None:
    async with room(tmp_path, NOBODY, "alice", "bob", server="inspircd") as (tendril, people):
        alice, bob = people
        await bob.settle()
        for line in (
            f"PRIVMSG {ROOM} :héllo",
            f"NOTICE {ROOM} :note this",
            f"PRIVMSG {ROOM} :\x01ACTION waves\x01",
            "NICK bobby",
            f"PART {ROOM} :bye",
            f"JOIN {ROOM}",
            "QUIT :gone",
        ):
            await bob.send(line)
        await alice.expect("QUIT")
        await alice.say(ROOM, b"caf\xe9")
        await alice.ask(".ping", "alice: pong")
    seen = await logged(tendril.config)
    start = seen.index(("JOIN", "bob", "")) + 1
    assert seen[start : start + 10] == [
        ("PRIVMSG", "bob", "héllo"),
        ("NOTICE", "bob", "note this"),
        ("ACTION", "bob", "waves"),
        ("NICK", "bob", "bobby"),
        ("PART", "bobby", "bye"),
        ("JOIN", "bobby", ""),
        ("QUIT", "bobby", "gone"),
        ("PRIVMSG", "alice", "café"),
        ("PRIVMSG", "alice", ".ping"),
        ("PRIVMSG", "Terra", "alice: pong"),
    ]


async def test_a_reply_does_not_wait_for_the_log_and_follows_its_question(tmp_path: Path) -> None:
    async with room(tmp_path, NOBODY, "alice", server="inspircd") as (tendril, (alice,)):
        await tendril.services.log.flush()
        file = log_path(tendril.config)
        with closing(sqlite3.connect(file, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            for _ in range(2):
                await alice.ask(".ping", "alice: pong")
            assert not other.execute("SELECT 1 FROM events WHERE text = '.ping'").fetchone()
            other.execute("COMMIT")
        await alice.ask(".ping", "alice: pong")
        await alice.settle()
    async with Database.open(file) as database:
        events = await ChatLog(database).find(Query(scope=PUBLIC, types=SPOKEN))
    questions = [event for event in events if not event.own]
    replies = [event for event in events if event.own]
    assert [event.text for event in questions] == [".ping"] * 3
    assert [event.reply_to for event in replies] == [event.id for event in questions]
    assert all(reply.id > (reply.reply_to or 0) for reply in replies)


async def test_lines_channels_lag_and_a_lost_connection_are_counted(tmp_path: Path) -> None:
    async with (
        ScriptedOpenAI() as script,
        embedded_ircd() as ircd,
        irc_tendril(irc_config(tmp_path, ircd.port, script.url)) as tendril,
    ):
        async with irc_client(ircd.port, "alice") as alice:
            await alice.join(ROOM)
            await alice.say(ROOM, ".ping")
            await alice.expect("pong")
        (network,) = tendril.networks.values()
        assert network._connection
        network._connection._abort()
        await until(lambda: network.losses and network.connected.is_set())
        await tendril.measure()
        counters, gauges = tendril.metrics.counters, tendril.metrics.gauges
        assert (counters["reconnects"], counters["refused"]) == (1, 0)
        assert counters["lines"] >= 2
        assert (gauges["networks_connected"], gauges["outbox"]) == (1, 0)
        assert 0 < gauges["lag_seconds"] < 30
