"""How a stretch of the log is laid out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from harnesses.web.rendering.view import blocks
from storage.chat_log.event import Event, EventType

MORNING = datetime(2026, 3, 1, 9, tzinfo=UTC)


def event(number: int, kind: EventType, *, days: int = 0) -> Event:
    time = MORNING + timedelta(days=days, minutes=number)
    return Event(network="irc", channel="#a", type=kind, time=time, nick="ada", id=number)


def test_quiet_events_in_a_row_are_folded_into_one_block() -> None:
    kinds = [EventType.JOIN, EventType.PART, EventType.PRIVMSG, EventType.QUIT, EventType.ACTION]
    laid = list(blocks(event(number, kind) for number, kind in enumerate(kinds)))
    assert [[each.id for each in block.events] for block in laid] == [[], [0, 1], [2], [3], [4]]
    assert [block.spoken for block in laid] == [False, False, True, False, True]


def test_a_new_day_gets_a_heading_and_ends_a_fold() -> None:
    laid = list(blocks([event(1, EventType.JOIN), event(2, EventType.JOIN, days=1)]))
    assert [(len(block.events), bool(block.day)) for block in laid] == [
        (0, True),
        (1, False),
        (0, True),
        (1, False),
    ]


def test_no_events_are_no_blocks() -> None:
    assert list(blocks([])) == []
