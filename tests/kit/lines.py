"""Lines of a chat, as events to store."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from storage.chat_log.event import Event, EventType, Place

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
"""The time of minute 0, a Friday."""

POND, LAKE, ADA = Place("irc", "#pond"), Place("irc", "#lake"), Place("irc", "ada")
"""Two channels and a private room."""


def said(text: str = "frogs", minute: float = 0, *, place: Place = POND, **fields: Any) -> Event:
    """Return what ada says at a place so many minutes after noon; other `fields` of the event take
    precedence."""
    event = Event(
        network=place.network,
        channel=place.channel,
        type=EventType.PRIVMSG,
        time=NOON + timedelta(minutes=minute),
        nick="ada",
        text=text,
    )
    return replace(event, **fields)
