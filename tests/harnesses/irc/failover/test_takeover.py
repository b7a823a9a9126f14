"""Which events that a standby has heard are in the log already."""

from __future__ import annotations

from pathlib import Path

from harnesses.core.services.shared_log import split_lines
from storage.chat_log.event import Event, EventType
from storage.db.database import Database
from storage.log import ChatLog, find_logged
from tests.kit.irc_session import NOON


def said(text: str, msgid: str | None = None) -> Event:
    return Event(
        network="net",
        channel="#c",
        type=EventType.PRIVMSG,
        time=NOON,
        nick="alice",
        text=text,
        msgid=msgid,
    )


async def test_a_message_of_several_lines_is_found_by_its_first(tmp_path: Path) -> None:
    async with Database.open(tmp_path / "irc.db") as database, ChatLog.open(database) as log:
        for line in split_lines(said("one\n\nthree", "m1")):
            log.write(line)
        log.write(said("alone"))
        await log.flush()
        heard = [said("one\n\nthree", "m1"), said("one\nother", "m2"), said("alone")]
        found = await find_logged(log, heard)
    assert {number: event.text for number, event in found.items()} == {0: "one", 2: "alone"}
