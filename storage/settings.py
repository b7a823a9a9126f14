"""Settings of the table `[storage]`, and the addresses of stores that follow from them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AliasChoices, Field, SecretStr

from storage.chat_log.channel_name import ChannelName
from storage.chat_log.event import Place
from storage.db.address import Address, PostgresSchema
from storage.db.errors import Unavailable
from terrarium.config import Config, Settings


class StorageSettings(Settings):
    """Where everything is kept, and for how long."""

    table: ClassVar[str] = "storage"

    url: SecretStr | None = Field(
        None,
        description="PostgreSQL database that keeps everything in the place of files, as"
        ' `"postgresql://terrarium@localhost/terrarium"`; it needs'
        " `pip install 'terrarium-irc[postgres]'`",
    )
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
        True,
        description="whether lines are also found by their meaning: the agent server's own model"
        " embeds the newest ones of each channel, in the background",
    )

    def days_of(self, place: Place) -> int:
        """Return the days for which a place's log is kept, 0 for ever: those of "network/#name",
        else of "#name", else `retention_days`."""
        named = {
            ChannelName.parse(name.lower()): days
            for name, days in self.channel_retention_days.items()
        }
        channel = place.channel.lower()
        anywhere = named.get(ChannelName(None, channel), self.retention_days)
        return named.get(ChannelName(place.network.lower(), channel), anywhere)


def store_address(config: Config, name: str) -> Address:
    """Return the address of the store called `name`: a tendril, "outbox" or "server"."""
    if url := config.section(StorageSettings).url:
        return PostgresSchema(url.get_secret_value(), name)
    return config.data / f"{name}.db"


def log_address(config: Config) -> Address:
    """Return the address of the IRC tendril's chat log, which other tendrils may read."""
    address = store_address(config, "irc")
    return log_path(config) if isinstance(address, Path) else address


def log_file(config: Config) -> Path:
    """Return the path of the chat log's file. Raises Unavailable when it is in PostgreSQL."""
    if config.section(StorageSettings).url:
        raise Unavailable(
            "everything is in PostgreSQL: back that up with pg_dump (docs/postgres.md, Copies)"
        )
    return log_path(config)


def log_path(config: Config) -> Path:
    """Return the path that the IRC tendril's chat log has when it is kept in a file."""
    return config.section(StorageSettings).db_path or config.data / "irc.db"
