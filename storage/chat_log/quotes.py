"""The table `quotes`: which lines of the log the lines of our own repeat."""

from __future__ import annotations

import json
from collections.abc import Collection

from storage.db.database import Connection

_GIVEN = "(SELECT CAST(value AS BIGINT) FROM json_each(?))"
# Lines that were removed meanwhile are left out.
_ADD = f"""
INSERT INTO quotes SELECT a.id, l.id FROM events a JOIN events l ON l.id IN {_GIVEN}
WHERE a.id = ? ON CONFLICT DO NOTHING"""
_SOURCES = f"""
SELECT id FROM events WHERE own = 0 AND id IN {_GIVEN} UNION
SELECT line_id FROM quotes JOIN events e ON answer_id IN (e.id, e.reply_to)
WHERE own = 1 AND e.id IN {_GIVEN}"""


def add(connection: Connection, answer: int, lines: Collection[int]) -> None:
    """Record that the event `answer`, or our lines that answer it, repeat `lines`."""
    connection.execute(_ADD, [json.dumps(list(lines)), answer])


def sources(connection: Connection, lines: Collection[int]) -> frozenset[int]:
    """Return those `lines` that people have said and, for those of our own, the lines that they
    repeat."""
    given = json.dumps(list(lines))
    return frozenset(row[0] for row in connection.execute(_SOURCES, [given, given]))


def answers(connection: Connection, lines: Collection[int]) -> frozenset[int]:
    """Return the events that are, or are answered by, lines of our own that repeat `lines`."""
    sql = f"SELECT DISTINCT answer_id FROM quotes WHERE line_id IN {_GIVEN}"
    return frozenset(row[0] for row in connection.execute(sql, [json.dumps(list(lines))]))
