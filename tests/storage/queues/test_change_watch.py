"""Whether a database may have been written is seen without asking it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from storage.chat_log.event import Place
from storage.db.database import Database
from storage.queues.change_watch import ChangeWatch
from storage.queues.outbox import Outbox


async def test_what_this_or_another_process_writes_is_noticed_once(tmp_path: Path) -> None:
    path = tmp_path / "outbox.db"
    async with Database.open(path) as database, Database.open(path) as other:
        watch = ChangeWatch(database)
        assert watch.may_have_changed()
        assert not watch.may_have_changed()
        for number, writer in enumerate((other, database, other)):
            await Outbox(writer).put(f"{number}", Place("irc", "#frogs"), "hello")
            assert watch.may_have_changed()
            assert len(await Outbox(database).list_unsent()) == number + 1
            assert not watch.may_have_changed()
        with closing(sqlite3.connect(path)) as file:
            file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        watch.may_have_changed()
        await Outbox(other).put("last", Place("irc", "#frogs"), "hello")
        assert watch.may_have_changed()
