"""The table `[storage]`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AliasChoices, Field

from storage.chat_log.channel_name import ChannelName
from storage.chat_log.event import Place
from terrarium.config import Config, Settings


class StorageSettings(Settings):
    """The file of the chat log, and its retention."""

    table: ClassVar[str] = "storage"

    db_path: Path | None = Field(
        None,
        validation_alias=AliasChoices("db_path", "storage_db_path"),
        description="SQLite file of the IRC tendril's log; by default irc.db in the data folder",
    )
    retention_days: int = Field(
        0, ge=0, description="days that the log and the bot's memory are kept; 0 is for ever"
    )
    channel_retention_days: dict[str, Annotated[int, Field(ge=0)]] = Field(
        default_factory=dict,
        description='the same for the log of single channels: "#name" or "network/#name"',
    )

    semantic: bool = Field(
        False,
        description="whether lines are also indexed by meaning, in the background; it needs"
        " `pip install 'terrarium[semantic]'`",
    )

    def days_of(self, place: Place) -> int:
        """Return how many days the log of a place is kept; 0 is for ever."""
        named = {
            ChannelName.parse(name.lower()): days
            for name, days in self.channel_retention_days.items()
        }
        channel = place.channel.lower()
        anywhere = named.get(ChannelName(None, channel), self.retention_days)
        return named.get(ChannelName(place.network.lower(), channel), anywhere)


def log_path(config: Config) -> Path:
    """Return the file of the IRC tendril's chat log, which other tendrils may read."""
    return config.section(StorageSettings).db_path or config.data / "irc.db"
