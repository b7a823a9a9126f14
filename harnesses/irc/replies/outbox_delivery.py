"""Delivery of the messages that other tendrils have put in the outbox."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from harnesses.irc.replies.sender import MessageSender
from harnesses.irc.transport.network import Network
from storage.chat_log.event import Place
from storage.db.database import Database
from storage.queues.outbox import Outbox, OutgoingMessage, outbox_path

_POLL = 1.0  # seconds between looks at the outbox


@asynccontextmanager
async def open_outbox(data: Path) -> AsyncIterator[Outbox]:
    """Open the outbox of a data folder. Raises StorageError."""
    async with Database.open(outbox_path(data)) as database:
        yield Outbox(database)


async def deliver(outbox: Outbox, networks: Mapping[str, Network], sender: MessageSender) -> None:
    """Send each message in the outbox once we are where it belongs, until cancelled."""
    while True:
        await _deliver_unsent(outbox, networks, sender)
        await asyncio.sleep(_POLL)


async def _deliver_unsent(
    outbox: Outbox, networks: Mapping[str, Network], sender: MessageSender
) -> None:
    for message in await outbox.list_unsent():
        network = _reachable(message, networks)
        if network is None:
            continue
        place = Place(network.name, message.place.channel)
        if await sender.say(sender.target(network, place), message.text):
            await outbox.mark_sent(message)


def _reachable(message: OutgoingMessage, networks: Mapping[str, Network]) -> Network | None:
    """Return the network on whose channel we are; a message that names none takes the first."""
    for network in networks.values():
        channel, meant = message.place.channel, message.place.network in ("", network.name)
        if meant and network.is_channel(channel) and network.reaches(channel):
            return network
    return None
