"""Import of old logs without duplicates.

An event counts as known if the log has as many equal events (same place, type, nick, target and
text, within the same minute or second) as the file has had so far. So a file may be imported again,
may have grown, may exist in two copies or overlap with what the bot itself has logged; and a line
that was said three times in a minute is kept three times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby

from storage.chat_log.event import Event
from storage.chat_log.event_table import insert, storable
from storage.db.database import Connection, Database, to_micros
from storage.log_index import fold_name

_MINUTE, _SECOND = 60_000_000, 1_000_000  # microseconds
_DEDUP_WINDOW = timedelta(days=1)  # by how much the times in a file may go backwards

# An id is its event's time in milliseconds, or ahead of it by the drift of its partition at most:
# an index finds the range of ids, and the exact range of times filters it.
_LIKE = """
SELECT time, type, nick, target, text FROM events
WHERE channel_id = (SELECT id FROM channels WHERE network = ?1 AND name = ?2)
    AND time >= ?3 AND time < ?4
    AND id BETWEEN ?3 / 1000 AND ?4 / 1000 + (SELECT coalesce(max(drift), 0) FROM partitions)
"""


@dataclass(frozen=True, slots=True)
class ImportedEvent:
    """An event of a file to import; unless its time `has_seconds` it has minutes only."""

    event: Event
    has_seconds: bool

    @property
    def resolution(self) -> int:
        """The resolution of the event's time in microseconds, within which two times are equal."""
        return _SECOND if self.has_seconds else _MINUTE

    @property
    def dedup_key(self) -> _DedupKey:
        """The fields by which it is compared for equality."""
        event, resolution = self.event, self.resolution
        return (
            *(event.network, fold_name(event.channel), resolution),
            *(to_micros(event.time) // resolution, event.type.value),
            *(event.nick, event.target, event.text),
        )


_DedupKey = tuple[str, str, int, int, str, str, str, str]
"""Network, folded channel, resolution, time in units of that, type, nick, target and text."""


class FileImport:
    """The import of one file, in batches."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._seen: Counter[_DedupKey] = Counter()

    async def add(self, events: Sequence[ImportedEvent]) -> int:
        """Add the events that the log does not have yet, in one transaction; return their number.

        Raises Unavailable.
        """
        events = [ImportedEvent(storable(old.event), old.has_seconds) for old in events]

        def add_new(db: Connection) -> int:
            # `known` includes what earlier batches of this file have added, and so does `_seen`.
            known: Counter[_DedupKey] = Counter()
            keys = sorted(old.dedup_key for old in events)
            for place, group in groupby(keys, key=lambda key: key[:3]):
                network, channel, resolution = place
                times = [key[3] for key in group]
                values = [network, channel, times[0] * resolution, (times[-1] + 1) * resolution]
                for time, *fields in db.execute(_LIKE, values):
                    known[(*place, time // resolution, *fields)] += 1
            new = []
            for old in events:
                like = old.dedup_key
                self._seen[like] += 1
                if self._seen[like] > known[like]:
                    new.append(old.event)
            insert(db, new)
            return len(new)

        added = await self._database.write(add_new)
        # Counts of older events are dropped, so that memory does not grow with the file.
        newest = max((to_micros(old.event.time) for old in events), default=0)
        oldest = newest - _DEDUP_WINDOW // timedelta(microseconds=1)
        kept = {like: n for like, n in self._seen.items() if like[3] * like[2] >= oldest}
        self._seen = Counter(kept)
        return added
