"""Parsers for the targets and channels of jobs, as people write them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from storage.chat_log.event import Place
from terrarium.config import Config, ConfigError

# RFC 2812, 1.3: a channel begins with one of #&+! and has no space, comma, bell or colon.
_CHANNEL = re.compile(r"(?:(?P<network>[^\s/#&+!]+)/)?(?P<channel>[#&+!][^\s,:\x00\x07]{1,199})")


@dataclass(frozen=True, slots=True)
class ChannelTarget:
    """A channel; `network` is None when only one network can be meant."""

    network: str | None
    name: str

    def place(self, config: Config, where: str) -> Place:
        """Return the place in the log. Raises ConfigError, which says `where`, when there are
        several networks to choose from."""
        if self.network:
            return Place(self.network, self.name)
        known = networks(config)
        if len(known) > 1:
            raise ConfigError(
                f'{config.name}: [cron] {where}: "{self.name}" could be on any of '
                f'{", ".join(known)}; write "{known[0]}/{self.name}"'
            )
        return Place(known[0], self.name)


@dataclass(frozen=True, slots=True)
class FileTarget:
    """A text file that grows; a relative path is inside the data folder."""

    path: Path


@dataclass(frozen=True, slots=True)
class WebhookTarget:
    """An address that takes JSON by POST."""

    url: str


Target = ChannelTarget | FileTarget | WebhookTarget


def parse_channel(text: str) -> ChannelTarget:
    """Parse "#name" or "network/#name". Raises ValueError."""
    match = _CHANNEL.fullmatch(text)
    if match is None:
        raise ValueError(f'"{text}" is not a channel; write "#name" or "network/#name"')
    return ChannelTarget(match["network"], match["channel"])


def parse_target(text: str) -> Target:
    """Parse a target of delivery. Raises ValueError, worded for the author of the configuration."""
    if text.startswith("file:") and len(text) > len("file:"):
        return FileTarget(Path(text.removeprefix("file:")))
    if text.startswith(("https://", "http://")):
        if not urlsplit(text).hostname:
            raise ValueError(f'"{text}" is an address without a host')
        return WebhookTarget(text)
    if _CHANNEL.fullmatch(text):
        return parse_channel(text)
    raise ValueError(
        f'"{text}" is no place to deliver to; write "#channel", "network/#channel", '
        '"file:PATH" or "https://..."'
    )


def networks(config: Config) -> list[str]:
    """Return the names of the IRC networks; the table [irc] alone is the network "irc"."""
    table = config.tables.get("irc", {})
    named: Mapping[str, Any] = table.get("networks", {}) if isinstance(table, Mapping) else {}
    return list(named) or ["irc"]
