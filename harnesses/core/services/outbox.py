"""The outbox of a tendril: messages that it has other tendrils say, and those it says for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime, timedelta

import structlog

from harnesses.core.errors import UnknownTendril
from storage.chat_log.channel_name import ChannelName
from storage.chat_log.event import Place
from storage.db.database import Database
from storage.db.errors import StorageError
from storage.queues.outbox import Outbox, OutgoingMessage, PlaceLimits
from terrarium.entry_points import entry_points

MESSAGE_PAUSE, MESSAGES_A_DAY = timedelta(minutes=10), 12
"""The least time between two messages that models send to a place by themselves, and the most of
them in a day."""

_RETRY_PAUSE = 1.0  # seconds

SayText = Callable[[Place, str, frozenset[int]], Awaitable[bool]]
"""Says a text, which quotes these lines of the log, at a place; returns False while that is not
possible."""

_log = structlog.get_logger()


class TendrilOutbox:
    """The messages of the tendril `owner` to other tendrils, and theirs to it.

    A message is stored in the shared `database` until it has been said, so that neither side's
    restart loses it.
    """

    def __init__(self, database: Database, owner: str) -> None:
        self.database, self._outbox = database, Outbox(database)
        self._owner = owner
        self._known = {*entry_points("terrarium.tendrils").names, owner}

    async def say(
        self, tendril: str, channel: str, text: str, *, key: str, quotes: Collection[int] = ()
    ) -> None:
        """Store a message that `tendril` is to say on "#channel" or "network/#channel".

        It is idempotent by `key`, and erased with whoever said one of the log lines `quotes` (those
        of a `TurnResult`). The message is said while that tendril runs; without a network, on the
        first one on which the tendril is in such a channel. Raises UnknownTendril, ValueError
        unless `channel` names a channel, and StorageError.
        """
        if tendril not in self._known:
            raise UnknownTendril(tendril, sorted(self._known))
        place = ChannelName.parse_channel(channel).on("")
        await self._outbox.put(f"{self._owner}/{key}", place, text, tendril=tendril, quotes=quotes)

    async def send(
        self,
        tendril: str,
        place: Place,
        text: str,
        *,
        key: str,
        quotes: Collection[int],
        now: datetime,
    ) -> datetime | None:
        """Store a message that a model has `tendril` say by itself, see `say`.

        Return None, or the time from which on the place may have another one: all models together
        may send it one in ten minutes, and twelve a day. Raises StorageError.
        """
        limits = PlaceLimits(MESSAGE_PAUSE, MESSAGES_A_DAY)
        message = OutgoingMessage(0, place, text, frozenset(quotes))
        key = f"{self._owner}/{key}"
        return await self._outbox.put_of_model(key, tendril, message, limits, now)

    async def waiting(self, tendril: str) -> Sequence[OutgoingMessage]:
        """Return the unsent messages for a tendril, oldest first. Raises StorageError."""
        return await self._outbox.list_unsent(tendril)

    async def deliver(self, say: SayText) -> None:
        """Say the messages for this tendril, oldest first, until cancelled.

        One that cannot be said is tried again each second, without holding up later ones.
        """
        while True:
            try:
                async for _ in self.database.changes():
                    while messages := await self._outbox.list_unsent(self._owner):
                        for message in messages:
                            # A crash between the two calls repeats a message rather than losing it.
                            if await say(message.place, message.text, message.quotes):
                                await self._outbox.mark_sent(message)
                        await asyncio.sleep(_RETRY_PAUSE)
            except StorageError as error:  # a full disk passes
                _log.error("outbox.not_delivered", error=str(error))
            await asyncio.sleep(_RETRY_PAUSE)
