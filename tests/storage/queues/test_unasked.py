"""The records of attention, on both databases."""

from __future__ import annotations

from datetime import timedelta

from storage.chat_log import deletion
from storage.chat_log.event import Place
from storage.db.database import Database
from storage.log import ChatLog
from storage.queues.unasked import LIFETIME, Signal, Signals
from tests.kit.lines import said
from tests.kit.stores import Stores

PLACE = Place("irc", "#frogs")


async def test_a_signal_is_kept_judged_and_goes_with_its_line_or_after_a_month(
    stores: Stores,
) -> None:
    async with Database.open(stores("irc")) as database, ChatLog.open(database) as log:
        event = said("how do I mount a cd?", place=PLACE)
        line, table = await log.append(event), Signals(database)
        about = Signal(event.time, "question", PLACE, event_id=line, outcome="felt")
        await table.put(about)
        about.outcome, about.ended, about.energy = "answered", event.time, 0.5
        await table.put(about)
        new = Signal(event.time, "job", PLACE, "the digest is there")
        for each in (new, Signal(event.time, "question", PLACE, event_id=line + 1, outcome="felt")):
            await table.put(each)  # the line of the second is not in the log
        assert [each.about for each in await table.unfelt(event.time)] == [new.about]
        await table.judge(about.id, is_good=False)
        (kept,) = await table.since(event.time)
        assert (kept.event_id, kept.outcome, kept.ended) == (line, "answered", event.time)
        assert (kept.energy, kept.is_good, kept.place) == (0.5, False, PLACE)
        await deletion.remove(database, [line])
        assert await table.since(event.time) == []
        await table.put(Signal(event.time + LIFETIME + timedelta(hours=1), "job", PLACE, "later"))
        assert [each.about for each in await table.unfelt(event.time)] == ["later"]
