"""One tendril has another say something: once for each key, also after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from harnesses.core.errors import UnknownTendril
from storage.chat_log.event import Place
from storage.db.database import Database
from storage.queues.outbox import Outbox
from tests.kit.data_files import outbox_path
from tests.kit.room_tendril import TEA, room_tendril, rooms_config


async def unsent(data: Path, tendril: str) -> list[str]:
    async with Database.open(outbox_path(data)) as database:
        return [message.text for message in await Outbox(database).list_unsent(tendril)]


async def test_a_message_waits_for_the_tendril_that_is_to_say_it_where_there_is_one(
    tmp_path: Path,
) -> None:
    async with room_tendril(rooms_config(tmp_path)) as tendril:
        with pytest.raises(UnknownTendril, match=r"ircc.*there are: .*irc, rooms, web"):
            await tendril.outbox.say("ircc", TEA, "hello", key="1")
        with pytest.raises(ValueError, match="is not a channel"):
            await tendril.outbox.say("irc", "bob", "hello", key="1")
        await tendril.outbox.say("irc", "libera/#frogs", "hello", key="1")
        await tendril.outbox.say("irc", "libera/#frogs", "hello again", key="1")
    async with Database.open(outbox_path(tmp_path)) as database:
        (message,) = await Outbox(database).list_unsent("irc")
    assert (message.place, message.text) == (Place("libera", "#frogs"), "hello")


async def test_what_others_have_put_in_is_said_once_the_tendril_can(tmp_path: Path) -> None:
    async with Database.open(outbox_path(tmp_path)) as database:
        for number in range(2):
            place = Place("", TEA)
            await Outbox(database).put(f"irc/{number}", place, f"news {number}", tendril="rooms")
    async with room_tendril(rooms_config(tmp_path)) as tendril:
        assert [await tendril.next_spoken() for _ in range(2)] == [(TEA, "news 0"), (TEA, "news 1")]
        tendril.open.clear()
        await tendril.outbox.say("rooms", TEA, "later", key="2")
        assert await unsent(tmp_path, "rooms") == ["later"]
        tendril.open.set()
        await tendril.outbox.say("rooms", TEA, "at last", key="3")
        assert [await tendril.next_spoken() for _ in range(2)] == [(TEA, "later"), (TEA, "at last")]
        assert "later" not in await unsent(tmp_path, "rooms")
