"""A forgetting that is killed, or fails, is finished when the bot starts or is asked again."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import closing
from pathlib import Path
from sqlite3 import connect

import pytest

from storage.db.database import Database
from storage.log import ChatLog
from storage.privacy.erasure import NamedPerson, forget, resume_erasures
from tests.kit.forgetting import (
    LINES,
    PERSON,
    Fault,
    ask,
    fill,
    forget_in_child,
    fresh_copy,
    leftovers,
    restart,
)
from tests.kit.stores import locked

KILLS, FULL_DISKS = 6, 4
LONGEST = 300_000  # bytes of the longest file while there is room for all


async def finish(data: Path, how: str) -> None:
    """Restart, or ask again; where nothing had begun, a restart has nothing to go on with."""
    if how == "restart":
        assert await restart(data)
        if not leftovers(data):
            return
        with closing(connect(data / "irc.db")) as file:
            untouched = "SELECT count(*) FROM events WHERE nick = ?"
            assert file.execute(untouched, [PERSON.nick]).fetchone() == (LINES + 1,)
    assert (await ask(data)).is_finished


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.server
async def test_killed_at_any_moment_it_is_finished_at_a_restart_or_when_asked_again(
    tmp_path: Path,
) -> None:
    await fill(tmp_path / "whole")
    data = fresh_copy(tmp_path / "whole", tmp_path / "data")
    began = time.monotonic()
    assert forget_in_child(data, Fault()) == "finished"
    took = time.monotonic() - began
    assert leftovers(data) == []
    chosen = random.Random(7)
    for number in range(KILLS):
        fresh_copy(tmp_path / "whole", data)
        forget_in_child(data, Fault(kill_after=chosen.uniform(0, took)))
        if number % 3 == 2:
            fault = Fault(kill_after=chosen.uniform(0, took))
            forget_in_child(data, fault, resumes=True)
        await finish(data, chosen.choice(["restart", "ask again"]))
        assert leftovers(data) == [], number


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.server
async def test_where_the_disk_is_full_it_says_so_and_is_finished_when_there_is_room(
    tmp_path: Path,
) -> None:
    await fill(tmp_path / "whole")
    chosen = random.Random(7)
    for _ in range(FULL_DISKS):
        data = fresh_copy(tmp_path / "whole", tmp_path / "data")
        ended = forget_in_child(data, Fault(longest_file=chosen.randrange(LONGEST)))
        assert ended in ("not begun", "not finished")
        assert leftovers(data)
        await finish(data, chosen.choice(["restart", "ask again"]))
        assert leftovers(data) == []


async def test_a_file_that_cannot_be_written_now_is_left_for_later(tmp_path: Path) -> None:
    await fill(tmp_path)
    with locked(tmp_path / "web.db"):
        assert not (await ask(tmp_path)).is_finished
        assert {each.split(":")[0] for each in leftovers(tmp_path)} == {"irc.db", "web.db"}
    assert await restart(tmp_path)
    assert leftovers(tmp_path) == []
    assert await restart(tmp_path)


async def test_a_log_that_is_still_being_read_is_not_taken_for_rewritten(tmp_path: Path) -> None:
    await fill(tmp_path)
    with closing(connect(tmp_path / "irc.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM events").fetchone()
        assert not (await ask(tmp_path)).is_finished
        assert leftovers(tmp_path)
    assert (await ask(tmp_path)).is_finished
    assert leftovers(tmp_path) == []


async def test_the_audit_log_says_once_how_much_was_removed_and_of_nobody(tmp_path: Path) -> None:
    await fill(tmp_path)
    async with Database.open(tmp_path / "irc.db") as database:
        person = NamedPerson("irc", nick=PERSON.nick.upper())
        gone = await forget(ChatLog(database), person, tmp_path, "command line")
        assert gone.events == LINES + 1
        rows = await database.fetch_all("SELECT actor, action, target, reason FROM audit")
    assert [tuple(row) for row in rows] == [
        ("root!r@r.example", "kick", "(forgotten)", "spam"),
        ("root!r@r.example", "kick", "(forgotten)", "spam"),
        ("command line", "forget", f"{LINES + 1} events", ""),
    ]
    assert leftovers(tmp_path) == []


def test_where_there_is_no_log_there_is_nothing_to_resume(tmp_path: Path) -> None:
    assert asyncio.run(resume_erasures(tmp_path / "irc.db", tmp_path))
    assert list(tmp_path.iterdir()) == []
