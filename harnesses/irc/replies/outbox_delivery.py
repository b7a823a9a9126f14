"""Brings to channels what other tendrils have put in the outbox."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from harnesses.irc.transport.network import Network
from storage.chat_log.event import Place
from storage.queues.outbox import Outbox, OutgoingMessage

_POLL = 1.0  # seconds between looks at the outbox

Say = Callable[[Network, Place, str], Awaitable[bool]]
"""Says a text to a channel; whether all of it went out."""


async def deliver(outbox: Outbox, networks: Mapping[str, Network], say: Say) -> None:
    """Say each parcel once we are where it belongs, for ever."""
    while True:
        for message in await outbox.list_unsent():
            network = _reachable(message, networks)
            if network is None:
                continue
            place = Place(network.name, message.place.channel)
            if await say(network, place, message.text):
                await outbox.mark_sent(message)
        await asyncio.sleep(_POLL)


def _reachable(message: OutgoingMessage, networks: Mapping[str, Network]) -> Network | None:
    """The network on whose channel we are; a parcel that names none takes the first."""
    for network in networks.values():
        channel, meant = message.place.channel, message.place.network in ("", network.name)
        if meant and network.is_channel(channel) and reachable(network, channel):
            return network
    return None


def reachable(network: Network, target: str) -> bool:
    """Whether something can be said to a channel, on which we have to be, or to a person."""
    if not network.is_channel(target):
        return network.connected.is_set()
    return network.fold(target) in {network.fold(channel) for channel in network.channels}
