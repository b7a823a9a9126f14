"""Lines that a bouncer or a server plays back: those we missed are logged once, none is answered.

What was said while we were there is in the log already, or somebody has had it forgotten, so only
lines of the gap count: those since the last word of the connection before, or, after a start, since
the newest line in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from harnesses.core.services.shared_log import TendrilLog, split_lines
from harnesses.irc.transport.network import Network
from storage.chat_log.event import EVERYTHING, Event, Place, Scope
from storage.chat_log.query import Query
from storage.db.errors import StorageError

_log = structlog.get_logger()

SKEW = timedelta(seconds=2)
"""The most that the clock of a server may be behind ours at the beginning of a gap."""

OWN_SKEW = timedelta(seconds=30)
"""The most that the server's time of our own words may differ from ours, by which we log them."""

MOST = 10_000
"""Lines that may wait to be looked up."""

CLOSING = 2.0
"""Seconds that the last of them have when we stop."""


@dataclass(frozen=True, slots=True)
class _Key:
    """The identity of a line where the server gives no message id."""

    place: Place
    nick: str
    type: str
    text: str
    second: int


class PlaybackLog:
    """Writes what was missed into the log; `run` has to run beside."""

    def __init__(self, log: TendrilLog, networks: Mapping[str, Network]) -> None:
        self._log, self._opt_outs, self._networks = log.chat_log, log.opt_outs, networks
        self._queue: asyncio.Queue[Event] = asyncio.Queue(MOST)
        self._taken: list[Event] = []
        self._newest: dict[str, datetime] = {}

    async def prepare(self) -> None:
        """Look up until when the log has each network. Raises StorageError."""
        for name in self._networks:
            found = await self._log.find(Query(scope=EVERYTHING, network=name, limit=1))
            if found:
                self._newest[name] = found[0].time

    def add(self, event: Event) -> None:
        """Take a line of the past, which is written unless we have heard it when it was said, or
        whoever said it has opted out."""
        left = self._networks[event.network].left or self._newest.get(event.network)
        if left is None or event.time < left - SKEW:
            return
        if not self._opt_outs.opt_out_rules.keeps(event):
            return
        try:
            for line in split_lines(event):
                self._queue.put_nowait(line)
        except asyncio.QueueFull:
            _log.warning("irc.playback_dropped", network=event.network)

    async def run(self) -> None:
        """Write what is missing in the log, until cancelled; then what still waits, as it counts as
        heard at the next start."""
        try:
            while True:
                self._taken = [await self._queue.get()]
                await self._write_taken()
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSING):
                    await self._write_taken()

    async def _write_taken(self) -> None:
        while not self._queue.empty():
            self._taken.append(self._queue.get_nowait())
        try:
            if self._taken:
                await self._write_missing(self._taken)
        except StorageError as error:
            _log.error("irc.playback_not_logged", lines=len(self._taken), error=str(error))
        self._taken = []

    async def _write_missing(self, events: list[Event]) -> None:
        await self._log.flush()  # what was said live may still wait to be written
        written: set[_Key | str] = set()
        missing = 0
        for event in events:
            key = event.msgid or _key(event)
            if key in written or await self._has(event):
                continue
            written.add(key)
            missing += 1
            self._log.write(event)
        _log.info("irc.played_back", lines=len(events), missing=missing)

    async def _has(self, event: Event) -> bool:
        """Return whether the log has a line: by its id, else the same words of the same nick there
        in the same second, else the same words of ours, under whatever nick."""
        query = Query(
            scope=Scope.from_places(Place(event.network, event.channel)),
            since=event.time - OWN_SKEW,
            until=event.time + OWN_SKEW,
            limit=1000,
        )
        return any(_is_same(event, known) for known in await self._log.find(query))


def _is_same(event: Event, known: Event) -> bool:
    if event.msgid and known.msgid:
        return event.msgid == known.msgid
    if (event.type, event.text) != (known.type, known.text):
        return False
    second = event.time.replace(microsecond=0) == known.time.replace(microsecond=0)
    return known.own or (event.nick == known.nick and second)


def _key(event: Event) -> _Key:
    place = Place(event.network, event.channel)
    return _Key(place, event.nick, event.type.value, event.text, int(event.time.timestamp()))
