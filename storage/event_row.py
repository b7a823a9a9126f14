"""Events as rows of the table `events`."""

from __future__ import annotations

from typing import Any

from storage.database import Row, from_micros, to_micros
from storage.event import Event, EventType

INSERT = f"INSERT INTO events VALUES ({', '.join('?' * 13)})"


def values(event: Event, event_id: int, channel_id: int, time: int) -> tuple[Any, ...]:
    """The columns of an event, in order; `time` is its `micros`."""
    return (
        event_id,
        channel_id,
        event.type.value,
        time,
        event.nick,
        event.user,
        event.host,
        event.account,
        event.target,
        storable(event.text),
        event.msgid,
        event.own,
        event.reply_to,
    )


def micros(event: Event) -> int:
    """The time of an event as its row has it."""
    return to_micros(event.time)


def storable(text: str) -> str:
    """`text` without halves of surrogate pairs, which UTF-8 cannot carry."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def event_of(row: Row, channel: Row) -> Event:
    """The event of a row and of its row in `channels`."""
    return Event(
        id=row["id"],
        network=channel["network"],
        channel=channel["name"],
        private=bool(channel["private"]),
        type=EventType(row["type"]),
        time=from_micros(row["time"]),
        nick=row["nick"],
        user=row["user"],
        host=row["host"],
        account=row["account"],
        target=row["target"],
        text=row["text"],
        msgid=row["msgid"],
        own=bool(row["own"]),
        reply_to=row["reply_to"],
    )
