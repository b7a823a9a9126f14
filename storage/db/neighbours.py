"""Discovery of other tendrils' stores: files in the data folder, or schemas in the database."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from storage.db.address import PREFIX

SCHEMAS = f"""
SELECT nspname FROM pg_namespace WHERE starts_with(nspname, '{PREFIX}')
    AND to_regclass(quote_ident(nspname) || '.turns') IS NOT NULL ORDER BY 1"""
"""Query for the names of all schemas that are stores of Terrarium, in order."""


def other_files(data: Path, log: Path) -> list[Path]:
    """Return the files in the folder `data` that are stores of Terrarium, without `log`."""
    found = (path for path in sorted(data.glob("*.db")) if path.resolve() != log.resolve())
    return [path for path in found if _is_store(path)]


def _is_store(path: Path) -> bool:
    """Return True if a file has our tables; other programs may keep files in the folder too.

    A file that cannot be read at the moment counts as ours: the caller's work on it then fails and
    is retried, instead of being skipped.
    """
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file:
            found = file.execute("SELECT 1 FROM sqlite_master WHERE name = 'turns'").fetchone()
    except sqlite3.Error as error:
        return error.sqlite_errorcode != sqlite3.SQLITE_NOTADB
    return found is not None
