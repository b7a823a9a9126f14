"""`terrarium logs export` and `backup`: the log comes out whole, and privately by default."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from harnesses.core.errors import TendrilError
from harnesses.logs.exporting import atomic_write, file_name
from harnesses.logs.importing import import_logs
from harnesses.logs.reading import ImportOptions
from storage.chat_log.event import EVERYTHING, PUBLIC, Event, EventType, Scope
from storage.db.database import Database
from storage.db.integrity import back_up
from storage.log import ChatLog, Query
from terrarium.config import Config
from tests.kit.command import Done, terrarium
from tests.kit.forgetting import small_disk

NOON = datetime(2026, 5, 1, 12, 0, 1, 250_000, tzinfo=UTC)


def event(number: int, **values: object) -> Event:
    """One event a minute, a month of them in all kinds."""
    kinds = list(EventType)
    kind = kinds[number % len(kinds)]
    renamed = kind is EventType.NICK
    told = Event(
        network="irc",
        channel="#frogs",
        type=kind,
        time=NOON + timedelta(hours=number),
        nick="ada",
        user="~a",
        host="host.example",
        text="" if renamed or kind is EventType.JOIN else f"Ünï \x02code\x02 {number}",
        target="bob" if renamed or kind is EventType.KICK else "",
    )
    return replace(told, **values)  # type: ignore[arg-type]


ALL = [event(number) for number in range(40)]
WHISPER = event(0, channel="eve", text="a private word")


async def filled(data: Path, events: Sequence[Event]) -> None:
    async with Database.open(data / "irc.db") as database, ChatLog.open(database) as log:
        await asyncio.gather(*(log.append(each) for each in events))


async def kept(data: Path, scope: Scope = PUBLIC) -> list[Event]:
    async with Database.open(data / "irc.db") as database:
        found = await ChatLog(database).find(Query(scope=scope, limit=10_000))
    return [replace(each, id=0) for each in found]


async def exported(folder: Path, *options: str) -> Done:
    """Run `logs export` on the data in a folder, and in that folder."""
    return await terrarium("logs", "export", *options, "--data", ".", cwd=folder)


async def brought_in(data: Path, path: Path) -> list[Event]:
    options = ImportOptions(zone=UTC, default_network="irc")
    stats = await import_logs(Config({}, None, data), [str(path)], options, lambda *_: None)
    assert stats.unclear == 0
    return await kept(data, EVERYTHING)


async def test_json_lines_come_back_as_they_were(tmp_path: Path) -> None:
    special = event(0, account="ada", msgid="x1", own=True, network="libera")
    await filled(tmp_path / "a", [*ALL, special, WHISPER])
    target = tmp_path / "all.jsonl"
    done = await terrarium("logs", "export", str(target), "--private", "--data", "a", cwd=tmp_path)
    assert done.err.strip() == "42 events"
    back = await brought_in(tmp_path / "b", target)
    assert sorted(back, key=str) == sorted([*ALL, special, WHISPER], key=str)


async def test_text_days_come_back_to_the_second_and_nobody_writes_a_line_for_another(
    tmp_path: Path,
) -> None:
    forged = "hi\n[12:00:00] <root> obey\u2028me"
    await filled(tmp_path / "a", [*ALL, event(96, type=EventType.PRIVMSG, text=forged)])
    await terrarium("logs", "export", "logs", "--format", "text", "--data", "a", cwd=tmp_path)
    days = sorted(path.name for path in (tmp_path / "logs" / "irc" / "#frogs").iterdir())
    assert days == [f"2026-05-0{day}.log" for day in (1, 2, 3, 5)]
    forged_day = tmp_path / "logs" / "irc" / "#frogs" / days[-1]
    assert forged_day.read_text() == "[12:00:01] <ada> hi [12:00:00] <root> obey me\n"
    forged_day.unlink()
    back = await brought_in(tmp_path / "b", tmp_path / "logs")
    told = [replace(each, time=each.time.replace(microsecond=0)) for each in ALL]
    masked = {EventType.JOIN, EventType.PART, EventType.QUIT}  # no other line has a place for it
    assert back == [
        each if each.type in masked else replace(each, user="", host="") for each in told
    ]


async def test_the_open_copy_is_one_table_without_hosts(tmp_path: Path) -> None:
    ban = event(99, type=EventType.MODE, text="+bb *!~bad@home.example eve!*@1.2.3.4", target="")
    await filled(tmp_path, [*ALL, WHISPER, ban])
    await exported(tmp_path, "o.db", "--format", "sqlite")
    with closing(sqlite3.connect(tmp_path / "o.db")) as copy:
        rows = copy.execute("SELECT time, nick, text FROM messages ORDER BY time").fetchall()
    assert len(rows) == len(ALL) + 1
    assert rows[-1][2] == "+bb *!*@* eve!*@*"
    assert rows[0] == ("2026-05-01T12:00:01.250Z", "ada", "Ünï \x02code\x02 0")
    raw = (tmp_path / "o.db").read_bytes()
    assert b"host.example" not in raw
    assert b"private word" not in raw


async def test_private_conversations_stay_unless_they_are_asked_for(tmp_path: Path) -> None:
    await filled(tmp_path, [*ALL, event(0, channel="#toads"), WHISPER])

    async def channels(*options: str) -> Counter[str]:
        done = await exported(tmp_path, *options)
        return Counter(json.loads(line)["channel"] for line in done.out.splitlines())

    assert await channels() == {"#frogs": 40, "#toads": 1}
    assert await channels("--channel", "eve") == {}
    assert await channels("--private") == {"#frogs": 40, "#toads": 1, "eve": 1}
    assert await channels("--private", "--channel", "irc/eve") == {"eve": 1}
    assert await channels("--channel", "irc/#frogs", "--since", "2026-05-03") == {"#frogs": 4}
    assert await channels("--channel", "#toads", "--until", "2026-05-01T12:00:01.250Z") == {}
    assert "is not a time" in (await exported(tmp_path, "--since", "yesterday")).err


async def test_a_file_that_is_there_is_replaced_only_by_force(tmp_path: Path) -> None:
    await filled(tmp_path, ALL)
    for command in ("export", "backup"):
        target = tmp_path / f"{command}.out"
        target.write_text("mine")
        asked = ("logs", command, target.name, "--data", ".")
        refused = await terrarium(*asked, cwd=tmp_path)
        assert (refused.status, target.read_text()) == (1, "mine")
        assert "--force replaces it" in refused.err
        assert (await terrarium(*asked, "--force", cwd=tmp_path)).status == 0
        assert target.stat().st_mode & 0o777 == 0o600
        assert not (tmp_path / f"{target.name}.part").exists()


@pytest.mark.slow
async def test_a_backup_under_writes_has_every_line_acknowledged_before_it_began(
    tmp_path: Path,
) -> None:
    (tmp_path / "b").mkdir()
    acknowledged: list[int] = []
    begun = asyncio.Event()
    async with Database.open(tmp_path / "irc.db") as database, ChatLog.open(database) as log:

        async def write() -> None:
            for number in range(100_000):
                acknowledged.append(await log.append(event(0, text=f"line {number}")))
                if number == 300:
                    begun.set()

        writing = asyncio.create_task(write())
        await begun.wait()
        expected = set(acknowledged)
        await asyncio.to_thread(back_up, tmp_path / "irc.db", tmp_path / "b" / "irc.db")
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
    with closing(sqlite3.connect(tmp_path / "b" / "irc.db")) as copy:
        assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        ids = {row[0] for row in copy.execute("SELECT id FROM events")}
    assert expected <= ids
    restored = await kept(tmp_path / "b")
    assert [each.text for each in restored[:2]] == ["line 0", "line 1"]


def test_the_name_of_a_channel_is_a_file_name_that_leads_nowhere_else() -> None:
    assert file_name("#frogs & [toads]") == "#frogs & [toads]"
    assert file_name("../../etc/passwd") == "%2E.%2F..%2Fetc%2Fpasswd"
    assert file_name("#a/\0b") == "#a%2F%00b"


@contextmanager
def read_only_disk(folder: Path, data: Path) -> Iterator[None]:
    """A disk at `folder` with a copy of `data` that nobody, not even root, can write."""
    with small_disk(folder, 8 << 20) as mounted:
        if not mounted:
            pytest.skip("only root can mount a disk")
        for name in ("irc.db", "irc.db-wal"):
            if (data / name).exists():
                shutil.copy(data / name, folder / name)
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        yield


async def test_a_log_on_media_that_cannot_be_written_is_searched_exported_and_copied(
    tmp_path: Path,
) -> None:
    await filled(tmp_path, ALL)
    disk = tmp_path / "disk"
    disk.mkdir()
    before = (tmp_path / "irc.db").read_bytes()
    with read_only_disk(disk, tmp_path):
        data = ("--data", str(disk))
        found = await terrarium("logs", "search", "codes*", *data, cwd=tmp_path)
        assert found.status == 0, found.err
        stats = await terrarium("logs", "stats", *data, cwd=tmp_path)
        assert "lines by 1 person" in stats.out, stats.err
        done = await terrarium("logs", "export", "all.jsonl", *data, cwd=tmp_path)
        assert "40 events" in done.err
        copy = await terrarium("logs", "backup", "copy.db", *data, cwd=tmp_path)
        assert copy.status == 0, copy.err
        refused = await terrarium("logs", "vacuum", *data, cwd=tmp_path)
        assert refused.status == 1
        assert "readonly" in refused.err
        assert len(refused.err.splitlines()) == 1
    assert (tmp_path / "irc.db").read_bytes() == before
    with closing(sqlite3.connect(tmp_path / "copy.db")) as file:
        assert file.execute("SELECT count(*) FROM events").fetchone() == (40,)


def test_a_file_that_comes_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "export.txt"

    def write() -> None:
        with atomic_write(path, force=False) as part:
            part.write_text("ours")
            path.write_text("theirs")

    with pytest.raises(TendrilError, match="already exists"):
        write()
    assert path.read_text() == "theirs"
    assert list(tmp_path.iterdir()) == [path]
