"""Whether a place is private follows from its name, in the file and for every reader."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from storage.chat_log import statistics
from storage.chat_log.event import PUBLIC, Identity, is_private
from storage.db.database import Database
from storage.log import ChatLog, Query
from storage.search.models import SearchQuery
from tests.kit.lines import ADA, POND, said


async def test_a_row_that_says_it_is_public_is_not_believed_without_the_sign(
    tmp_path: Path,
) -> None:
    path = tmp_path / "irc.db"
    async with Database.open(path) as database:
        log = ChatLog(database)
        await log.add([said("public"), said("secret", place=ADA)])
    with closing(sqlite3.connect(path)) as file:
        file.execute("UPDATE channels SET private = 0")
        file.commit()
    async with Database.open(path) as database:
        log = ChatLog(database)
        assert [each.text for each in await log.find(Query(scope=PUBLIC))] == ["public"]
        assert [each.place for each in await log.read(statistics.channels, PUBLIC)] == [POND]
        assert (await log.read(statistics.stats, Query(scope=PUBLIC))).lines == 1
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
