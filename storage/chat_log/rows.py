"""Events as rows of the table `events`."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import Any

from storage.chat_log.event import Event, EventType
from storage.db.database import Row, from_micros, to_micros

_HALF = re.compile("[\ud800-\udfff]")
_KEPT = 512  # events: the next prompt has most lines of the last one
_TYPES = {kind.value: kind for kind in EventType}
INSERT = f"INSERT INTO events VALUES ({', '.join('?' * 13)})"


def values(event: Event, event_id: int, channel_id: int, time: int) -> tuple[Any, ...]:
    """The columns of a `storable` event, in order; `time` is its `micros`."""
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
        event.text,
        event.msgid,
        event.own,
        event.reply_to,
    )


def micros(event: Event) -> int:
    """The time of an event as its row has it."""
    return to_micros(event.time)


def storable(event: Event) -> Event:
    """The event without halves of surrogate pairs, which UTF-8 cannot carry: each is a `?`."""
    names = (event.network, event.channel, event.nick, event.user, event.host, event.target)
    words = "".join((*names, event.account or "", event.msgid or "", event.text))
    if words.isascii() or not _HALF.search(words):
        return event
    return replace(
        event,
        network=_whole(event.network),
        channel=_whole(event.channel),
        nick=_whole(event.nick),
        user=_whole(event.user),
        host=_whole(event.host),
        account=None if event.account is None else _whole(event.account),
        target=_whole(event.target),
        text=_whole(event.text),
        msgid=None if event.msgid is None else _whole(event.msgid),
    )


def _whole(text: str) -> str:
    return _HALF.sub("?", text)


def event_of(row: Row, channel: Row) -> Event:
    """The event of a row and of its row in `channels`."""
    return _event_of(tuple(row), channel["network"], channel["name"], bool(channel["private"]))


@lru_cache(_KEPT)
def _event_of(row: tuple[Any, ...], network: str, channel: str, private: bool) -> Event:
    id, _, type, time, nick, user, host, account, target, text, msgid, own, reply_to = row
    return Event(
        id=id,
        network=network,
        channel=channel,
        private=private,
        type=_TYPES[type],
        time=from_micros(time),
        nick=nick,
        user=user,
        host=host,
        account=account,
        target=target,
        text=text,
        msgid=msgid,
        own=bool(own),
        reply_to=reply_to,
    )
