"""Whether a place is private follows from its name, in the file and for every reader."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from storage.chat_log.event import PUBLIC, Event, EventType, Identity, Place, is_private
from storage.chat_log.event_table import values
from storage.db.database import Database, to_micros
from storage.log import ChatLog, Query
from storage.search.models import SearchQuery

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
POND, VERA = Place("irc", "#pond"), Place("irc", "vera")


def said(text: str, place: Place, nick: str) -> Event:
    return Event(
        network=place.network,
        channel=place.channel,
        type=EventType.PRIVMSG,
        time=NOON,
        nick=nick,
        text=text,
    )


def rows(*events: tuple[int, Event]) -> list[tuple[object, ...]]:
    """Rows of `events`; each event comes with the id of its channel."""
    time = to_micros(NOON)
    return [values(each, 100 + n, channel, time) for n, (channel, each) in enumerate(events)]


async def test_a_row_that_says_it_is_public_is_not_believed_without_the_sign(
    tmp_path: Path,
) -> None:
    path = tmp_path / "irc.db"
    async with Database.open(path) as database:
        log = ChatLog(database)
        await log.add([said("public", POND, "bob"), said("secret", VERA, "vera")])
    with closing(sqlite3.connect(path)) as file:
        file.execute("UPDATE channels SET private = 0")
        file.commit()
    async with Database.open(path) as database:
        log = ChatLog(database)
        assert [each.text for each in await log.find(Query(scope=PUBLIC))] == ["public"]
        assert [each.place for each in await log.channels(PUBLIC)] == [POND]
        assert (await log.stats(Query(scope=PUBLIC))).lines == 1
        found = await log.search(SearchQuery(text="secret", within=Query(scope=PUBLIC)))
        assert found.hits == ()


def test_a_word_to_operators_and_every_room_of_a_person_is_private() -> None:
    assert not any(map(is_private, ("#pond", "&local", "+open", "!ABCDEpond")))
    assert all(map(is_private, ("@#pond", "@+#pond", "vera", "~vera", "vera!v@h.example", "")))


@given(st.text(), st.text(), st.text(), st.none() | st.text())
def test_no_account_user_or_host_makes_a_private_room_public(
    nick: str, user: str, host: str, account: str | None
) -> None:
    # What no server gives away as a nick, and a nick is what the room of nobody else begins with.
    nick = nick.lstrip("#&+!") or "n"
    assert is_private(Identity(nick, user, host, account).room(str.lower))
