"""What a standby has heard, and what of it the holder of the leases has logged for sure."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

from harnesses.core.services.shared_log import split_lines
from harnesses.core.tendril.status import StatusFile
from harnesses.irc.protocol.message import parse
from harnesses.irc.session import handlers
from harnesses.irc.standby import LEASE_PREFIX, MAX_LAG, Standby
from harnesses.irc.transport.networks import Networks
from storage.chat_log.event import Event, EventType
from storage.connection import Row, Values
from storage.db.database import Database
from storage.log import ChatLog, find_logged
from storage.queues.leases import Leases
from terrarium.config import Config
from tests.kit.irc_session import NOON, inside


class DistantDatabase(Database):
    """A database whose answers are long on the way."""

    async def fetch_all(self, sql: str, values: Values = ()) -> list[Row]:
        rows = await super().fetch_all(sql, values)
        await asyncio.sleep(MAX_LAG + 0.2)
        return rows


async def test_a_slow_answer_settles_nothing_after_the_watermark(tmp_path: Path) -> None:
    message = parse(":alice!a@h PRIVMSG #c :only we have heard this")
    assert message
    (event,) = handlers.receive(inside().session, message)
    async with DistantDatabase.open(tmp_path / "irc.sqlite3") as database:
        keys = {"networks": {"net": {"server": "irc.example"}}}
        networks = Networks(Config({"irc": keys}, None, tmp_path))
        standby = Standby(database, networks, StatusFile(tmp_path, "irc"))
        # A holder that has died since: its watermark is the time of this.
        await Leases(database, "holder").acquire([f"{LEASE_PREFIX}net"], timedelta())
        standby.on_event(event)
        assert await standby.try_acquire()
        ((heard, below_watermark),) = standby.drain()
    assert heard.text == "only we have heard this"
    assert not below_watermark


def said(text: str, msgid: str | None = None) -> Event:
    return Event(
        network="net",
        channel="#c",
        type=EventType.PRIVMSG,
        time=NOON,
        nick="alice",
        text=text,
        msgid=msgid,
    )


async def test_a_message_of_several_lines_is_found_by_its_first(tmp_path: Path) -> None:
    async with Database.open(tmp_path / "irc.db") as database, ChatLog.open(database) as log:
        for line in split_lines(said("one\n\nthree", "m1")):
            log.write(line)
        log.write(said("alone"))
        await log.flush()
        heard = [said("one\n\nthree", "m1"), said("one\nother", "m2"), said("alone")]
        found = await find_logged(log, heard)
    assert {number: event.text for number, event in found.items()} == {0: "one", 2: "alone"}
