"""Channel names as people write them in settings, options and URLs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from storage.chat_log.event import CHANNEL_PREFIXES, Place, is_private

# RFC 2812, section 1.3: a name has no space, comma, bell or colon.
_CHANNEL = re.compile(r"(?:(?P<network>[^\s/#&+!]+)/)?(?P<channel>[#&+!][^\s,:\x00\x07]{1,199})")


@dataclass(frozen=True, slots=True)
class ChannelName:
    """A channel's name, `#channel` or `network/#channel`; without a network `network` is None."""

    network: str | None
    channel: str

    @classmethod
    def parse(cls, text: str | None) -> ChannelName | None:
        """Parse a name that may also be that of a private conversation; return None for no text.

        The part before the first slash is the network, unless `text` begins with a channel prefix:
        the name of a channel may contain slashes itself.
        """
        if not text:
            return None
        network, slash, channel = text.partition("/")
        if text[0] in CHANNEL_PREFIXES or not slash:
            return cls(None, text)
        return cls(network, channel)

    @classmethod
    def parse_channel(cls, text: str) -> ChannelName:
        """Parse the name of a channel. Raises ValueError if it is not one."""
        match = _CHANNEL.fullmatch(text)
        if match is None:
            raise ValueError(f'"{text}" is not a channel; write "#name" or "network/#name"')
        return cls(match["network"], match["channel"])

    @property
    def is_channel(self) -> bool:
        """True unless it names a private conversation."""
        return not is_private(self.channel)

    def __str__(self) -> str:
        return f"{self.network}/{self.channel}" if self.network else self.channel

    def on(self, network: str) -> Place:
        """Return the place of this name; `network` is the default for a name without one."""
        return Place(network if self.network is None else self.network, self.channel)
