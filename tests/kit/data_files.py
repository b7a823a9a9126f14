"""Paths of the database files shared by the processes of a data folder."""

from __future__ import annotations

from pathlib import Path


def outbox_path(data: Path) -> Path:
    """Return the path of the outbox, through which tendrils send each other messages."""
    return data / "outbox.db"


def server_path(data: Path) -> Path:
    """Return the path of the agent server's database of keys and usage."""
    return data / "server.db"
