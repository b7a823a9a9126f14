"""Pseudonyms of people and channels, for which the agent server keeps separate budgets.

They are stable for one UTC day, the period of a budget, also across restarts. Each day has its own
random key in a file in `DATA/run`, which backups leave out. The file is deleted when the next key
is created; from then on nobody can compute the old pseudonyms.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Callable
from datetime import date, datetime
from hashlib import blake2b
from pathlib import Path

import structlog

from storage.db.private_files import make_folder

_KEY_BYTES = 16

_log = structlog.get_logger()


class Pseudonyms:
    """The pseudonyms of the people and channels of the tendril `name`; `now` returns the time in
    UTC."""

    def __init__(self, data: Path, name: str, now: Callable[[], datetime]) -> None:
        self._folder, self._name, self._now = data / "run", name, now
        self._day: date | None = None
        self._key = b""

    def of(self, name: str) -> str:
        """Return today's pseudonym of a person or channel: 16 hexadecimal digits."""
        today = self._now().date()
        if today != self._day:
            self._day, self._key = today, self._key_of(today)
        text = f"{self._name} {name}"
        return blake2b(text.encode(), key=self._key, digest_size=8).hexdigest()

    def _key_of(self, day: date) -> bytes:
        """Return the key of a day, from its file, or else a new one. Never raises OSError."""
        path = self._folder / f"{self._name}-{day.isoformat()}.key"
        try:
            make_folder(self._folder)
            for old in set(self._folder.glob(f"{self._name}-????-??-??.key")) - {path}:
                old.unlink(missing_ok=True)
            return self._shared_key(path)
        except OSError as error:  # a full disk: the pseudonyms are stable only in this process
            _log.warning("pseudonyms.not_kept", error=str(error))
            return secrets.token_bytes(_KEY_BYTES)

    def _shared_key(self, path: Path) -> bytes:
        """Return the key in a file, written now if the file has none. Raises OSError."""
        with open(os.open(path, os.O_CREAT | os.O_RDWR, 0o600), "r+b") as file:
            # Several processes of a tendril, as IRC standbys, share the file: one writes the key,
            # and the others wait for that moment.
            fcntl.flock(file, fcntl.LOCK_EX)
            key = file.read()
            if len(key) != _KEY_BYTES:  # new, or a crash came before it was written
                key = secrets.token_bytes(_KEY_BYTES)
                file.seek(0)
                file.truncate()
                file.write(key)
        return key
