"""The table `[storage]`."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import AliasChoices, Field

from storage.config import Config, Section


class StorageSettings(Section):
    """Where the chat log is kept."""

    table: ClassVar[str] = "storage"

    db_path: Path | None = Field(
        None,
        validation_alias=AliasChoices("db_path", "storage_db_path"),
        description="SQLite file of the IRC tendril's log; by default irc.db in the data folder",
    )


def log_path(config: Config) -> Path:
    """The file of the IRC tendril's chat log, which other tendrils may read."""
    return config.section(StorageSettings).db_path or config.data / "irc.db"
