"""The outbox: what one tendril hands to another is said once, and only once."""

from __future__ import annotations

from storage.chat_log.event import Place
from storage.db.database import Database
from storage.queues.outbox import Outbox
from tests.kit.stores import Stores

HOME = Place("irc", "#home")


async def test_messages_wait_in_order_until_they_have_been_said(stores: Stores) -> None:
    async with Database.open(stores("outbox")) as database:
        outbox = Outbox(database)
        await outbox.put("a", HOME, "first")
        await outbox.put("b", Place("oftc", "#away"), "second")
        first, second = await outbox.list_unsent()
        assert (first.place, first.text) == (HOME, "first")
        assert (second.place, second.text) == (Place("oftc", "#away"), "second")
        await outbox.mark_sent(first)
        assert list(await outbox.list_unsent()) == [second]


async def test_the_same_key_is_the_same_message_also_after_it_was_said(stores: Stores) -> None:
    async with Database.open(stores("outbox")) as database:
        outbox = Outbox(database)
        await outbox.put("a", HOME, "first")
        await outbox.put("a", HOME, "again")
        (message,) = await outbox.list_unsent()
        assert message.text == "first"
        await outbox.mark_sent(message)
        await outbox.put("a", HOME, "again")
        assert list(await outbox.list_unsent()) == []


async def test_the_text_of_a_message_that_was_said_is_not_kept(stores: Stores) -> None:
    async with Database.open(stores("outbox")) as database:
        outbox = Outbox(database)
        await outbox.put("a", HOME, "private matter")
        await outbox.mark_sent((await outbox.list_unsent())[0])
        rows = await database.fetch_all("SELECT text FROM outbox")
    assert [row["text"] for row in rows] == [""]


async def test_one_process_hands_over_to_another_and_a_restart_loses_nothing(
    stores: Stores,
) -> None:
    async with Database.open(stores("outbox")) as sender:
        await Outbox(sender).put("a", HOME, "hello")
        async with Database.open(stores("outbox")) as receiver:
            assert [message.text for message in await Outbox(receiver).list_unsent()] == ["hello"]
    async with Database.open(stores("outbox")) as receiver:
        assert [message.text for message in await Outbox(receiver).list_unsent()] == ["hello"]
