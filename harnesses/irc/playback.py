"""Playback: lines replayed by a bouncer or server that we have missed are logged, each once.

Only the gap counts: lines since the end of the previous connection or, after a start, since the
newest line in the log. Earlier lines were heard live: they are in the log, or were erased on
request and must not come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta

import structlog

from harnesses.core.services.shared_log import TendrilLog, split_lines
from harnesses.irc.transport.network import Network
from storage.chat_log.event import EVERYTHING, Event, Place, Scope
from storage.chat_log.event_table import Query
from storage.db.errors import StorageError

_log = structlog.get_logger()

CLOCK_SKEW = timedelta(seconds=2)
"""Tolerance at the beginning of the gap, for a server clock that is behind ours."""

OWN_CLOCK_SKEW = timedelta(seconds=30)
"""Tolerance for our own lines, which were logged with the time of our clock."""

MAX_QUEUED = 10_000
"""The most messages in the queue; further ones are dropped."""

CLOSING_TIMEOUT = 2.0
"""Seconds for writing the rest of the queue when we stop."""


class PlaybackLog:
    """The writer of missed lines: `add` queues a line, the background task `run` writes it."""

    def __init__(self, log: TendrilLog, networks: Mapping[str, Network]) -> None:
        self._log, self._opt_outs, self._networks = log.chat_log, log.opt_outs, networks
        self._queue: asyncio.Queue[Event] = asyncio.Queue(MAX_QUEUED)
        self._taken: list[Event] = []
        self._newest: dict[str, datetime] = {}

    async def prepare(self) -> None:
        """Read the time of the newest logged event of each network. Raises StorageError."""
        for name in self._networks:
            found = await self._log.find(Query(scope=EVERYTHING, network=name, limit=1))
            if found:
                self._newest[name] = found[0].time

    def add(self, event: Event) -> None:
        """Queue a replayed message, unless it is older than the gap or its author has opted out."""
        left = self._networks[event.network].left or self._newest.get(event.network)
        if left is None or event.time < left - CLOCK_SKEW:
            return
        if not self._opt_outs.opt_out_rules.keeps(event):
            return
        try:
            self._queue.put_nowait(event)
        except asyncio.QueueFull:
            _log.warning("irc.playback_dropped", network=event.network)

    async def run(self) -> None:
        """Write missing lines until cancelled, then what is still queued."""
        try:
            while True:
                self._taken = [await self._queue.get()]
                await self._write_taken()
        finally:
            # At the next start lines still queued could be older than the newest logged one, and
            # would count as heard. `_taken` holds those of a write that was cancelled halfway;
            # `_has` finds the ones that it has stored.
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSING_TIMEOUT):
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
        await self._log.flush()  # live lines may still be queued, where `_has` does not see them
        written: set[tuple[object, ...]] = set()
        missing = 0
        for event in events:
            # With the place: the copies of a message to several channels may share an id.
            place = Place(event.network, event.channel)
            second = int(event.time.timestamp())
            key: tuple[object, ...] = (place, event.nick, event.type, event.text, second)
            if event.msgid:
                key = (place, event.msgid)
            if key in written or await self._has(event):
                continue
            written.add(key)
            missing += 1
            # Only here split into lines: those of a multiline message share its `msgid`, and would
            # be taken for repetitions of the first.
            for line in split_lines(event):
                self._log.write(line)
        _log.info("irc.played_back", lines=len(events), missing=missing)

    async def _has(self, event: Event) -> bool:
        """Return whether the log has this message, or the first line of a multiline one.

        They match by `msgid` if both have one, else by type and text and either the same nick
        and second, or being one of our own lines within `OWN_CLOCK_SKEW`.
        """
        query = Query(
            scope=Scope.from_places(Place(event.network, event.channel)),
            since=event.time - OWN_CLOCK_SKEW,
            until=event.time + OWN_CLOCK_SKEW,
            limit=1000,
        )
        return any(_is_same(event, known) for known in await self._log.find(query))


def _is_same(event: Event, known: Event) -> bool:
    if event.msgid and known.msgid:
        return event.msgid == known.msgid
    if (event.type, event.text.partition("\n")[0]) != (known.type, known.text):
        return False
    second = event.time.replace(microsecond=0) == known.time.replace(microsecond=0)
    # Our own line may have been logged with another second, or with a nick we had before.
    return known.own or (event.nick == known.nick and second)
