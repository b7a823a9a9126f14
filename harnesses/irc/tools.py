"""Tools that only a body on IRC can have."""

from __future__ import annotations

from harnesses.irc.network import Network
from llm.tools import tool


class ChannelTools:
    """What the model may ask about the channel it is in."""

    def __init__(self, network: Network, channel: str) -> None:
        self._network = network
        self._channel = channel

    @tool(reads=True)
    async def get_current_users(self) -> list[str]:
        """List the nicks of the people who are in this channel now."""
        return self._network.members(self._channel)
