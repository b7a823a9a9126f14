"""The stores beside one: other files in the folder, or other schemas in the database."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from storage.db.address import PREFIX

SCHEMAS = f"""
SELECT nspname FROM pg_namespace WHERE starts_with(nspname, '{PREFIX}')
    AND to_regclass(quote_ident(nspname) || '.turns') IS NOT NULL ORDER BY 1"""
"""The schemas in which tendrils keep things."""


def other_files(data: Path, log: Path) -> list[Path]:
    """Return the files in the data folder, beside the log, in which tendrils keep things."""
    return [path for path in sorted(data.glob("*.db")) if path != log and _is_ours(path)]


def _is_ours(path: Path) -> bool:
    """Return True if a file has the tables of a tendril: other programs may keep files there too.

    One that cannot be read just now is taken for ours; what is to be done there will fail as well,
    and be tried again.
    """
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file:
            found = file.execute("SELECT 1 FROM sqlite_master WHERE name = 'turns'").fetchone()
    except sqlite3.Error as error:
        return error.sqlite_errorcode != sqlite3.SQLITE_NOTADB
    return found is not None
