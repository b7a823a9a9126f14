"""Playback: lines replayed by a bouncer or server that we have missed are logged, each once.

Only the gap counts: lines since the end of the previous connection or, after a start, since the
newest line in the log. Earlier lines were heard live: they are in the log, or were erased on
request and must not come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime

import structlog

from harnesses.core.services.shared_log import TendrilLog, split_lines
from harnesses.irc.transport.network import Network
from storage.chat_log.event import EVERYTHING, Event
from storage.chat_log.event_table import Query
from storage.db.errors import StorageError
from storage.log import CLOCK_SKEW, find_logged, matching_key

_log = structlog.get_logger()

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
            # `find_logged` finds the ones that it has stored.
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSING_TIMEOUT):
                    await self._write_taken()

    async def _write_taken(self) -> None:
        while not self._queue.empty():
            self._taken.append(self._queue.get_nowait())
        if not self._taken:
            return
        # Once each, as the histories of two requests may overlap.
        once = {(e.msgid or e.time.replace(microsecond=0), matching_key(e)): e for e in self._taken}
        events = list(once.values())
        try:
            await self._log.flush()  # live lines may still be queued, where nobody finds them
            known = await find_logged(self._log, events)
        except StorageError as error:
            _log.error("irc.playback_not_logged", lines=len(events), error=str(error))
        else:
            for number, event in enumerate(events):
                # Only here split into lines: those of a multiline message share its `msgid`, and
                # would be taken for repetitions of the first.
                for line in () if number in known else split_lines(event):
                    self._log.write(line)
            _log.info("irc.played_back", lines=len(events), missing=len(events) - len(known))
        self._taken = []
