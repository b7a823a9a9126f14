"""Parsers for the targets and channels of jobs, as people write them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from storage.chat_log.channel_name import ChannelName
from storage.chat_log.event import Place
from terrarium.config import Config, ConfigError


@dataclass(frozen=True, slots=True)
class ChannelTarget:
    """A channel, whose name has no network when only one network can be meant."""

    name: ChannelName

    def place(self, config: Config, where: str) -> Place:
        """Return the place in the log. Raises ConfigError, which says `where`, when several
        networks could be meant."""
        known = networks(config)
        if self.name.network is None and len(known) > 1:
            raise ConfigError(
                f'{config.name}: [cron] {where}: "{self.name}" could be on any of '
                f'{", ".join(known)}; write "{known[0]}/{self.name}"'
            )
        return self.name.on(known[0])


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
    """Return the channel of "#name" or "network/#name". Raises ValueError."""
    return ChannelTarget(ChannelName.parse_channel(text))


def parse_target(text: str) -> Target:
    """Parse a target of delivery. Raises ValueError, worded for the author of the configuration."""
    if text.startswith("file:") and len(text) > len("file:"):
        return FileTarget(Path(text.removeprefix("file:")))
    if text.startswith(("https://", "http://")):
        if not urlsplit(text).hostname:
            raise ValueError(f'"{text}" is an address without a host')
        return WebhookTarget(text)
    try:
        return parse_channel(text)
    except ValueError as error:
        raise ValueError(
            f'"{text}" is no place to deliver to; write "#channel", "network/#channel", '
            '"file:PATH" or "https://..."'
        ) from error


def networks(config: Config) -> list[str]:
    """Return the names of the IRC networks; the table [irc] alone is the network "irc"."""
    table = config.tables.get("irc", {})
    named: Mapping[str, Any] = table.get("networks", {}) if isinstance(table, Mapping) else {}
    return list(named) or ["irc"]
