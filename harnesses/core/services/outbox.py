"""The outbox of a tendril: what others have it say, and what it has others say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import entry_points

import structlog

from harnesses.core.errors import UnknownTendril
from storage.chat_log.channel_name import ChannelName
from storage.chat_log.event import Place
from storage.db.database import Address, Database
from storage.db.errors import StorageError
from storage.queues.change_watch import ChangeWatch
from storage.queues.outbox import Outbox, OutgoingMessage

_POLL = 1.0  # seconds between looks at the outbox

SayText = Callable[[Place, str], Awaitable[bool]]
"""Says a text at a place; returns False while that is not possible."""

_log = structlog.get_logger()


class TendrilOutbox:
    """Hands messages to other tendrils, and takes those that are for this one, its `owner`.

    A message is stored until it has been said, so that neither side's restart loses it. `known`
    are the names of the tendrils that there are, `database` is the one that they share.
    """

    def __init__(self, database: Database, owner: str, known: Collection[str]) -> None:
        self.database, self._outbox = database, Outbox(database)
        self._owner, self._known = owner, known

    @classmethod
    @asynccontextmanager
    async def open(cls, address: Address, owner: str) -> AsyncIterator[TendrilOutbox]:
        """Open the outbox. Raises StorageError."""
        known = {*entry_points(group="terrarium.tendrils").names, owner}
        async with Database.open(address) as database:
            yield cls(database, owner, known)

    async def say(self, tendril: str, channel: str, text: str, *, key: str) -> None:
        """Have `tendril` say a text on "#channel" or "network/#channel", once for each `key`.

        Returns when the message is stored; it is said when that tendril is there. Without a
        network the first one is meant on which the tendril is in such a channel. Raises
        UnknownTendril, ValueError for a name that is no channel's, and StorageError.
        """
        if tendril not in self._known:
            raise UnknownTendril(tendril, sorted(self._known))
        place = ChannelName.parse_channel(channel).on("")
        await self._outbox.put(f"{self._owner}/{key}", place, text, tendril=tendril)

    async def waiting(self, tendril: str) -> Sequence[OutgoingMessage]:
        """Return the messages for a tendril that have not been said, oldest first. Raises
        StorageError."""
        return await self._outbox.list_unsent(tendril)

    async def deliver(self, say: SayText) -> None:
        """Say the messages for this tendril, in order and each second anew, until cancelled."""
        watch, is_left = ChangeWatch(self.database), False
        while True:
            try:
                if watch.may_have_changed() or is_left:
                    is_left = False
                    for message in await self._outbox.list_unsent(self._owner):
                        if await say(message.place, message.text):
                            await self._outbox.mark_sent(message)
                        else:
                            is_left = True
            except StorageError as error:  # a full disk passes
                _log.error("outbox.not_delivered", error=str(error))
                is_left = True
            await asyncio.sleep(_POLL)
