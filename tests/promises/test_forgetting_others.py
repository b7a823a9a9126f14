"""Whoever is forgotten takes along what is their own: nothing of others is lost, or given away."""

from __future__ import annotations

import codecs
import shutil
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from sqlite3 import Connection, ProgrammingError
from types import FrameType
from typing import Any

import pytest

from storage.chat_log.event import Place
from storage.db.database import Database
from storage.log import ChatLog
from storage.privacy.erasure import Forgotten, Person, forget
from tests.kit.irc_client import irc_client
from tests.kit.irc_scene import NOBODY
from tests.kit.irc_tendril import ROOM, irc_config, irc_tendril
from tests.kit.ircd import embedded_ircd
from tests.kit.lines import NOON, said
from tests.kit.others import fill_others, guesses, rows_of

MALLORY = Person("irc", "mallory", "mallory", "127.0.0.1", None)
RIGHT = list(dict.fromkeys(guesses()))[:100]
WRONG = [codecs.encode(words, "rot13") for words in RIGHT]
EVERYDAY = ("do you know what a", "can you tell me about", "what is the best way", "no")


@contextmanager
def statements() -> Iterator[Counter[str]]:
    """Yield how often which statements, by their beginnings, are run on all connections to SQLite
    that are opened meanwhile; how many those are depends on threads, so PRAGMAs do not count."""
    counts = Counter[str]()

    def note(statement: str) -> None:
        if not statement.startswith("PRAGMA"):
            counts[statement[:40]] += 1

    def profile(_frame: FrameType, event: str, value: object) -> None:
        if event == "return" and isinstance(value, Connection):
            with suppress(ProgrammingError):  # of another thread, which has done so itself
                value.set_trace_callback(note)

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield counts
    finally:
        threading.setprofile(None)
        sys.setprofile(None)


async def forget_after(data: Path, text: str) -> tuple[Forgotten, Counter[str]]:
    """Say a text on a channel, as Mallory, and forget him; return the result and the statements
    that it took."""
    his: dict[str, Any] = {"nick": MALLORY.nick, "user": MALLORY.user, "host": MALLORY.host}
    his |= {"place": Place("irc", ROOM), "time": NOON.replace(year=NOON.year + 1)}
    with statements() as run:
        async with Database.open(data / "irc.db") as database:
            log = ChatLog(database)
            await log.add([said(text, **his)])
            gone = await forget(log, MALLORY, data)
    return gone, run


@pytest.mark.slow
async def test_whoever_guesses_words_of_others_learns_and_removes_nothing(tmp_path: Path) -> None:
    await fill_others(tmp_path)
    before = rows_of(tmp_path)
    replies: set[str] = set()
    guessed, size = (*RIGHT, *WRONG, *EVERYDAY), len(EVERYDAY)
    groups = [guessed[at : at + size] for at in range(0, len(guessed), size)]
    tables = {"irc": {"channel_per_minute": 10_000}, "agent": {"trace_days": 0}}
    async with (
        embedded_ircd() as ircd,
        irc_tendril(irc_config(tmp_path, ircd.port, NOBODY, **tables)),
    ):
        for number, group in enumerate(groups):
            # Each time somebody else, as the bot ignores whoever is so quick so often.
            async with irc_client(ircd.port, f"mallory{number:03}") as mallory:
                await mallory.join(ROOM)
                for words in group:
                    await mallory.say(ROOM, words)
                asked = await mallory.told(".forget me")
                done = await mallory.told(f".forget me {asked.split()[-1]}")
                replies.add(f"{asked.replace(mallory.nick, 'NICK')[:-6]} {done}")
    assert len(RIGHT) == len(WRONG) == 100
    (reply,) = replies
    assert (
        "5 events of yours, my replies to them and quotes of them, and 0 reminders" in reply
    )  # one is the JOIN
    assert "Forgotten: 5 events of yours, with my replies to them" in reply
    assert before <= rows_of(tmp_path)


async def test_a_forgetting_takes_as_much_work_after_right_guesses(tmp_path: Path) -> None:
    await fill_others(tmp_path / "whole")
    before = rows_of(tmp_path / "whole")
    for right, wrong in list(zip(RIGHT, WRONG, strict=True))[::10]:
        work = []
        for words in (right, wrong):
            data = tmp_path / "data"
            shutil.copytree(tmp_path / "whole", data)
            gone, run = await forget_after(data, words)
            assert gone == Forgotten(events=1)
            assert before <= rows_of(data), words
            work.append(run)
            shutil.rmtree(data)
        assert work[0] == work[1], right
        assert sum(work[0].values()) > 50
