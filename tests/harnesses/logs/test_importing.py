"""`terrarium logs import`: everything comes in, once, beside a bot that writes."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from harnesses.logs.importing import ImportStats, import_logs
from harnesses.logs.reading import ImportOptions
from storage.chat_log.event import PUBLIC, Identity, Place, Scope
from storage.chat_log.opt_outs import OptOuts
from storage.db.database import Database
from storage.log import ChatLog, Query
from terrarium.config import Config
from tests.kit.command import terrarium
from tests.kit.web_site import event

EXCERPT = Path(__file__).parents[2] / "data" / "ubuntu-600-lines.txt"
DAY = "[12:00] <ada> yes\n[12:00] <ada> yes\n[12:00] <bob> yes\n[12:01] <ada> yes\n"


def config(data: Path) -> Config:
    return Config({}, None, data)


async def imported(data: Path, *paths: Path, channel: str | None = None) -> ImportStats:
    options = ImportOptions(zone=UTC, default_network="irc", channel=channel)
    return await import_logs(config(data), [str(path) for path in paths], options, lambda *_: None)


async def logged(data: Path, scope: Scope = PUBLIC) -> list[str]:
    async with Database.open(data / "irc.db") as database:
        found = await ChatLog(database).find(Query(scope=scope, limit=10_000))
    return [f"{each.time:%H:%M} {each.nick} {each.text}" for each in found]


@pytest.fixture
def day(tmp_path: Path) -> Path:
    """A log of four lines."""
    log = tmp_path / "#frogs.2024-01-01.log"
    log.write_text(DAY)
    return log


@pytest.fixture
def excerpt(tmp_path: Path) -> Path:
    """A log of 600 real lines."""
    log = tmp_path / "#ubuntu.2009-10-01.log"
    log.write_bytes(EXCERPT.read_bytes())
    return log


async def test_what_was_said_twice_is_there_twice_and_only_what_is_new_is_added(
    tmp_path: Path, day: Path
) -> None:
    first, again = await imported(tmp_path, day), await imported(tmp_path, day)
    assert (first.imported, first.present) == (4, 0)
    assert (again.imported, again.present) == (0, 4)
    expected = ["12:00 ada yes", "12:00 ada yes", "12:00 bob yes", "12:01 ada yes"]
    assert await logged(tmp_path) == expected
    (tmp_path / day.name).write_text(DAY + "[12:01] <ada> yes\n[12:02] <ada> no\n")
    grown = await imported(tmp_path, day)
    assert (grown.imported, grown.present) == (2, 4)
    assert (await logged(tmp_path))[-2:] == ["12:01 ada yes", "12:02 ada no"]


async def test_what_the_bot_has_logged_itself_is_not_added_again(tmp_path: Path, day: Path) -> None:
    live = event("yes", channel="#Frogs", time=datetime(2024, 1, 1, 12, 0, 31, 250, tzinfo=UTC))
    async with Database.open(tmp_path / "irc.db") as database, ChatLog.open(database) as log:
        await log.append(live)
    stats = await imported(tmp_path, day)
    assert (stats.imported, stats.present) == (3, 1)


async def test_real_lines_come_in_from_a_compressed_file_once_and_are_found(tmp_path: Path) -> None:
    log = tmp_path / "old" / "2009-10-01.txt.gz"
    log.parent.mkdir()
    log.write_bytes(gzip.compress(EXCERPT.read_bytes()))
    first = await imported(tmp_path, log.parent, channel="#ubuntu")
    again = await imported(tmp_path, log.parent, channel="#ubuntu")
    assert (first.imported, first.unclear) == (600, 0)
    assert (again.imported, again.present) == (0, 600)
    done = await terrarium("logs", "search", "touchpad", "--data", ".", cwd=tmp_path)
    assert "<Keiya> (Touchpad)" in done.out


async def test_an_import_goes_on_where_it_was_broken_off(tmp_path: Path, excerpt: Path) -> None:
    class Interrupted(Exception):
        """As Ctrl-C would."""

    def stop(path: Path, done: int) -> None:
        raise Interrupted

    options = ImportOptions(zone=UTC, default_network="irc")
    with suppress(Interrupted):
        await import_logs(config(tmp_path), [str(excerpt)], options, stop)
    rest = await imported(tmp_path, excerpt)
    assert rest.present > 0
    assert rest.present + rest.imported == len(await logged(tmp_path)) == 600


async def test_a_bot_that_writes_meanwhile_loses_nothing(tmp_path: Path, excerpt: Path) -> None:
    home = Scope.from_places(Place("irc", "#home"))
    async with Database.open(tmp_path / "irc.db") as database, ChatLog.open(database) as log:

        async def bot() -> None:
            for number in range(50):
                await log.append(event(str(number), channel="#home"))

        stats, _ = await asyncio.gather(imported(tmp_path, excerpt), bot())
    assert stats.imported == 600
    assert [line.split()[-1] for line in await logged(tmp_path, home)] == list(map(str, range(50)))


async def test_an_import_brings_back_nobody_who_has_opted_out(tmp_path: Path) -> None:
    async with Database.open(tmp_path / "irc.db") as database:
        await OptOuts(database).add("irc", Identity("Ada"))
    log = tmp_path / "#frogs.2024-01-01.log"
    log.write_text(DAY + "[12:02] <bob> [nolog] hush\n")
    stats = await imported(tmp_path, log)
    assert (stats.imported, stats.unwanted) == (1, 4)
    assert await logged(tmp_path) == ["12:00 bob yes"]


@pytest.mark.parametrize(
    ("name", "channel"), [(os.fsdecode(b"#caf\xe9"), "#caf?"), ("#ÄRGER", "#ÄRGER")]
)
async def test_a_channel_of_any_name_comes_in_once(tmp_path: Path, name: str, channel: str) -> None:
    (tmp_path / f"{name}.2024-01-01.log").write_text(DAY)
    first, again = await imported(tmp_path, tmp_path), await imported(tmp_path, tmp_path)
    assert (first.imported, again.imported, again.present) == (4, 0, 4)
    assert await logged(tmp_path, Scope.from_places(Place("irc", channel))) != []


async def test_the_command_says_what_it_did_and_what_it_could_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "logs" / "libera"
    folder.mkdir(parents=True)
    (folder / "#frogs.2024-01-01.log").write_text(DAY + "what is \x1b[31mthis\n")
    for number in range(12):
        (folder / f"notes{number:02}.txt").write_text("milk\n")
    done = await terrarium("logs", "import", "logs", "--data", "data", cwd=tmp_path)
    assert done.status == 1
    assert "1 file: 4 events imported, 0 already there, 1 line not understood" in done.out
    assert "  of libera/#frogs\n" in done.out
    assert "for example: #frogs.2024-01-01.log: what is \ufffd[31mthis" in done.out
    assert "skipped: logs/libera/notes09.txt: not in a known log format" in done.err
    assert done.err.endswith("  skipped: 2 more\n")


async def test_a_time_zone_or_a_format_that_is_none_is_refused(tmp_path: Path) -> None:
    zone = await terrarium("logs", "import", "x", "--timezone", "Mars/Olympus", cwd=tmp_path)
    style = await terrarium("logs", "import", "x", "--format", "runes", cwd=tmp_path)
    nothing = await terrarium("logs", "import", "nothing*", cwd=tmp_path)
    assert (zone.status, style.status, nothing.status) == (2, 2, 1)
    assert "not a time zone" in zone.err
    assert "there are: weechat" in style.err
    assert "no such file: nothing*" in nothing.err


def json_line(**values: object) -> str:
    whole = {"network": "irc", "channel": "#frogs", "type": "PRIVMSG", "nick": "vera"}
    whole |= {"time": "2026-05-01T12:00:00Z", "text": "a line"}
    return json.dumps(whole | values) + "\n"


async def test_a_line_that_contradicts_the_name_of_its_place_is_refused_with_its_number(
    tmp_path: Path,
) -> None:
    file = tmp_path / "all.jsonl"
    file.write_text(
        json_line(text="fine")
        + json_line(channel="vera", private=False, text="not public")
        + json_line(private=True, text="not private")
        + json_line(channel="vera", text="says nothing")
        + json_line(channel="vera", private=True, text="says so")
    )
    stats = await imported(tmp_path, file)
    assert (stats.imported, stats.refused_lines) == (3, 2)
    assert [reason.split(": ")[0] for reason in stats.refused] == [f"{file}:2", f"{file}:3"]
    assert "'vera' is the name of a private conversation" in stats.refused[0]
    # Nor can private lines be moved to a channel.
    file.write_text(json_line(channel="vera", text="my secret"))
    stats = await imported(tmp_path, file, channel="#frogs")
    assert (stats.imported, stats.refused_lines) == (0, 1)
    assert stats.refused[0].startswith(f"{file}:1: it is of a private conversation")
    assert [line.split(maxsplit=2)[2] for line in await logged(tmp_path)] == ["fine"]


async def test_one_imported_line_does_not_make_later_private_words_public(tmp_path: Path) -> None:
    log = tmp_path / "2024-01-01.log"
    log.write_text(DAY)
    await imported(tmp_path, log, channel="vera")
    async with Database.open(tmp_path / "irc.db") as database, ChatLog.open(database) as later:
        await later.append(event("my private diagnosis", channel="vera", nick="vera"))
    assert await logged(tmp_path) == []
    assert len(await logged(tmp_path, Scope.from_places(Place("irc", "vera")))) == 5


async def test_what_is_said_in_the_future_is_refused_with_its_number(tmp_path: Path) -> None:
    tomorrow = datetime.now(UTC) + timedelta(hours=23)
    file = tmp_path / "all.jsonl"
    file.write_text(
        json_line(time="2099-01-01T00:00:00Z") + json_line(time=tomorrow.isoformat(), text="soon")
    )
    znc = tmp_path / "#frogs.2099-01-01.log"
    znc.write_text("[12:00] <ada> from a clock that is wrong\n")
    done = await terrarium(
        *("logs", "import", str(file), str(znc), "--network", "irc", "--data", "."), cwd=tmp_path
    )
    assert done.status == 1
    assert f"{file}:1: its time, 2099-01-01 00:00 UTC, is in the future" in done.err
    assert f"{znc}:1: its time, 2099-01-01 12:00 UTC, is in the future" in done.err
    assert "2 lines skipped in all" in done.out
    assert [line.split(maxsplit=2)[2] for line in await logged(tmp_path)] == ["soon"]


async def test_a_line_that_is_too_long_is_refused_whole(tmp_path: Path) -> None:
    log = tmp_path / "#frogs.2024-01-01.log"
    rest = "[12:01] <eve> hidden in the rest".rjust(66_000)
    log.write_text(f"[12:00] <ada> before\n[12:00] <ada> {rest}\n[12:02] <bob> after\n")
    stats = await imported(tmp_path, log)
    assert (stats.imported, stats.refused_lines, stats.unclear) == (2, 1, 0)
    assert stats.refused == [f"{log}:2: it is longer than 65,536 bytes"]
    assert await logged(tmp_path) == ["12:00 ada before", "12:02 bob after"]


async def test_the_progress_of_an_import_ends_at_the_size_of_the_files(tmp_path: Path) -> None:
    packed, plain = tmp_path / "#frogs.2024-01-01.log.gz", tmp_path / "#pond.2024-01-01.log"
    packed.write_bytes(gzip.compress(DAY.encode() * 2_000))
    plain.write_bytes(DAY.replace("yes", "j\u00e4").encode())
    done = Counter[Path]()

    def on_progress(path: Path, size: int) -> None:
        done[path] += size
        assert done[path] <= path.stat().st_size

    options = ImportOptions(zone=UTC, default_network="irc")
    await import_logs(config(tmp_path), [str(packed), str(plain)], options, on_progress)
    assert done == {path: path.stat().st_size for path in (packed, plain)}
