"""The names of channels as people write them in settings, options and addresses."""

from __future__ import annotations

import re
from dataclasses import dataclass

from storage.chat_log.event import CHANNEL_PREFIXES, Place, is_private

# RFC 2812, section 1.3: a name has no space, comma, bell or colon.
_CHANNEL = re.compile(r"(?:(?P<network>[^\s/#&+!]+)/)?(?P<channel>[#&+!][^\s,:\x00\x07]{1,199})")


@dataclass(frozen=True, slots=True)
class ChannelName:
    """A name in the form `#channel`, or `network/#channel`; else `network` is None."""

    network: str | None
    channel: str

    @classmethod
    def parse(cls, text: str | None) -> ChannelName | None:
        """Read a name that may also be of a private conversation; None of nothing.

        Before the first slash is the network, unless `text` begins as a channel does, whose name
        may have a slash.
        """
        if not text:
            return None
        network, slash, channel = text.partition("/")
        if text[0] in CHANNEL_PREFIXES or not slash:
            return cls(None, text)
        return cls(network, channel)

    @classmethod
    def parse_channel(cls, text: str) -> ChannelName:
        """Read the name of a channel. Raises ValueError when it is none."""
        match = _CHANNEL.fullmatch(text)
        if match is None:
            raise ValueError(f'"{text}" is not a channel; write "#name" or "network/#name"')
        return cls(match["network"], match["channel"])

    @property
    def is_channel(self) -> bool:
        """True unless it is the nick of a private conversation."""
        return not is_private(self.channel)

    def __str__(self) -> str:
        return f"{self.network}/{self.channel}" if self.network else self.channel

    def on(self, network: str) -> Place:
        """Return the place that it names, on `network` if it names none itself."""
        return Place(network if self.network is None else self.network, self.channel)
