"""Pseudonyms of people and channels, by which the agent server keeps their budgets apart.

They are the same for a UTC day, also after a restart, as budgets are of a day. Their key is in a
file of its own in `DATA/run`, which no backup has, and is removed with the first use of the next.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from datetime import date, datetime
from hashlib import blake2b
from pathlib import Path

import structlog

from storage.db.private_files import make_folder

_BYTES = 16

_log = structlog.get_logger()


class Pseudonyms:
    """The pseudonyms of the people and channels of the tendril `name`; `now` tells the time."""

    def __init__(self, data: Path, name: str, now: Callable[[], datetime]) -> None:
        self._folder, self._name, self._now = data / "run", name, now
        self._day: date | None = None
        self._key = b""

    def of(self, name: str) -> str:
        """Return the pseudonym of today of a person or channel."""
        today = self._now().date()
        if today != self._day:
            self._day, self._key = today, self._key_of(today)
        text = f"{self._name} {name}"
        return blake2b(text.encode(), key=self._key, digest_size=8).hexdigest()

    def _key_of(self, day: date) -> bytes:
        """Return the key of a day from its file, which is made by whoever needs it first."""
        path = self._folder / f"{self._name}-{day.isoformat()}.key"
        try:
            make_folder(self._folder)
            for old in set(self._folder.glob(f"{self._name}-????-??-??.key")) - {path}:
                old.unlink(missing_ok=True)
            try:
                with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
                    file.write(secrets.token_bytes(_BYTES))
            except FileExistsError:
                pass
            key = path.read_bytes()
        except OSError as error:  # a full disk: then they hold until this process ends
            _log.warning("pseudonyms.not_kept", error=str(error))
            key = b""
        return key if len(key) == _BYTES else secrets.token_bytes(_BYTES)
