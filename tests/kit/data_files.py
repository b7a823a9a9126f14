"""Files of a data folder."""

from __future__ import annotations

from pathlib import Path


def outbox_path(data: Path) -> Path:
    """Return the path of the outbox, through which tendrils send each other messages."""
    return data / "outbox.db"


def server_path(data: Path) -> Path:
    """Return the path of the agent server's database of keys and usage."""
    return data / "server.db"


def files_with(data: Path, *words: str) -> list[str]:
    """Return the names of all files in which any of the words is, in free pages and write-ahead
    logs too, sorted."""
    wanted = [word.encode() for word in words]
    return sorted(
        path.name
        for path in data.rglob("*")
        if path.is_file() and any(word in path.read_bytes() for word in wanted)
    )
