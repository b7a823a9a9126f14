"""Parsers for the delivery targets and channels of jobs, as written in the configuration."""

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
    """A channel; its network may be omitted if there is only one."""

    name: ChannelName

    def place(self, config: Config, where: str) -> Place:
        """Return the channel's place in the log. Raises ConfigError if the network is ambiguous;
        `where` is the setting that its message names."""
        known = networks(config)
        if self.name.network is None and len(known) > 1:
            raise ConfigError(
                f'{config.name}: [cron] {where}: "{self.name}" could be on any of '
                f'{", ".join(known)}; write "{known[0]}/{self.name}"'
            )
        return self.name.on(known[0])


@dataclass(frozen=True, slots=True)
class FileTarget:
    """A text file to append to; a relative path is inside the data folder."""

    path: Path


@dataclass(frozen=True, slots=True)
class WebhookTarget:
    """A URL that accepts a POST of JSON."""

    url: str


Target = ChannelTarget | FileTarget | WebhookTarget


def parse_channel(text: str) -> ChannelTarget:
    """Return the channel of "#name" or "network/#name". Raises ValueError."""
    return ChannelTarget(ChannelName.parse_channel(text))


def parse_target(text: str) -> Target:
    """Parse a delivery target. Raises ValueError, worded for the author of the configuration."""
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
    """Return the names of the configured IRC networks; without any the table [irc] itself is the
    network "irc"."""
    table = config.tables.get("irc", {})
    named: Mapping[str, Any] = table.get("networks", {}) if isinstance(table, Mapping) else {}
    return list(named) or ["irc"]
