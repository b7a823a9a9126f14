"""The database files that the processes of a data folder share."""

from __future__ import annotations

from pathlib import Path


def outbox_path(data: Path) -> Path:
    """Return the file through which tendrils hand messages to one another."""
    return data / "outbox.db"


def server_path(data: Path) -> Path:
    """Return the agent server's file: keys and usage."""
    return data / "server.db"
