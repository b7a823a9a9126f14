"""What a standby has heard, and what of it the holder of the leases has logged for sure."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

from harnesses.irc.failover.standby import LEASE_PREFIX, MAX_LAG, Standby
from harnesses.irc.protocol.message import parse
from harnesses.irc.session import handlers
from harnesses.irc.settings import NetworkSettings
from harnesses.irc.transport.network import Network
from storage.connection import Row, Values
from storage.db.database import Database
from storage.queues.leases import Leases
from tests.kit.irc_session import inside


class DistantDatabase(Database):
    """A database whose answers are long on the way."""

    async def fetch_all(self, sql: str, values: Values = ()) -> list[Row]:
        rows = await super().fetch_all(sql, values)
        await asyncio.sleep(MAX_LAG + 0.2)
        return rows


async def test_a_slow_answer_about_the_leases_settles_nothing_that_came_after_the_watermark(
    tmp_path: Path,
) -> None:
    message = parse(":alice!a@h PRIVMSG #c :only we have heard this")
    assert message
    (event,) = handlers.receive(inside().session, message)
    async with DistantDatabase.open(tmp_path / "irc.sqlite3") as database:
        network = Network("net", NetworkSettings(server="irc.example"))
        standby = Standby(database, {"net": network})
        # A holder that has died since: its watermark is the time of this.
        await Leases(database, "holder").acquire([f"{LEASE_PREFIX}net"], timedelta())
        standby.on_event(event)
        assert await standby.try_acquire()
        ((heard, below_watermark),) = standby.drain()
    assert heard.text == "only we have heard this"
    assert not below_watermark
