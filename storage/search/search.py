"""Full-text search: the newest matching lines, a few hundred of them ranked together.

FTS5 can rank by itself, but reads all entries of a common word to do so. Here the newest
`_WINDOW_LINES` matching lines are ranked. Further pages continue in the same window and then in the
next older one, so that a page holds the same lines whenever it is requested, whatever is said
meanwhile.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime

from storage.chat_log.event import Place
from storage.chat_log.event_table import VisibleChannels, event_of
from storage.db.database import Connection, from_micros
from storage.db.errors import BadCursor
from storage.log_index import fold_name
from storage.search.matcher import Matcher
from storage.search.models import Facets, Hit, Order, SearchPage, SearchQuery
from storage.search.planner import ClausePlan, LineConditions
from storage.search.query_parser import Clause, parse
from storage.search.scanner import LAST_ID, LineCounts, ResultScanner

_WINDOW_LINES = 200  # lines that are ranked together
_MAX_FACET_VALUES = 12  # channels, nicks and months of the facets


@dataclass(frozen=True, slots=True)
class _Cursor:
    """The start of a page: the hit number `skip` in the window of ids from `top` down to `bottom`,
    which is 0 until the window has been read."""

    top: int = LAST_ID
    bottom: int = 0
    skip: int = 0

    def __str__(self) -> str:
        return f"{self.top}.{self.bottom}.{self.skip}"

    @classmethod
    def decode(cls, text: str | None) -> _Cursor:
        """Return the cursor that a client sends back, for None the first one. Raises BadCursor."""
        # Of untrusted input only short numbers are taken; those of 16 digits hold any id.
        parts = str(cls()).split(".") if text is None else text.split(".")
        if len(parts) != 3 or not all(p.isascii() and p.isdigit() and len(p) < 17 for p in parts):
            raise BadCursor("no such cursor: use the next_cursor of the page before")
        return cls(*map(int, parts))


def search(connection: Connection, search_query: SearchQuery) -> SearchPage:
    """Return a page of hits. Raises BadCursor."""
    parsed = parse(
        search_query.text, search_query.mode, now=datetime.now(UTC), zone=search_query.zone
    )
    cursor = _Cursor.decode(search_query.cursor)
    conditions = LineConditions(connection, search_query.within, parsed)
    # An empty text finds everything within; one of which nothing can be parsed finds nothing.
    if search_query.text.strip() and not parsed:
        return SearchPage(is_understood=False)
    if not conditions.channels.rows:
        return SearchPage(notes=parsed.notes)
    plans = [ClausePlan(clause, conditions) for clause in parsed.clauses or (Clause(),)]
    scanner = ResultScanner(connection, conditions, plans)
    size = max(_WINDOW_LINES, search_query.within.limit)
    if cursor.bottom:
        window = scanner.read_again(cursor.top, cursor.bottom)
    else:
        window = scanner.read(cursor.top, size)
    matcher = Matcher(parsed.terms)
    ordered = list(window.rows)  # newest first
    if search_query.order is Order.RANK:  # a sort keeps the newest of equal ones first
        scores = {
            row["id"]: matcher.score(row["text"], position / len(ordered))
            for position, row in enumerate(ordered)
        }
        ordered.sort(key=lambda row: -scores[row["id"]])
    shown = ordered[cursor.skip : cursor.skip + search_query.within.limit]
    channels = conditions.channels.rows
    events = [event_of(row, channels[row["channel_id"]]) for row in shown]
    seen, following = cursor.skip + len(shown), None
    if seen < len(window.rows):
        following = _Cursor(window.rows[0]["id"], window.bottom, seen)
        if search_query.order is Order.TIME:
            following = _Cursor(window.rows[seen - 1]["id"] - 1)
    elif window.more:
        following = _Cursor(window.bottom - 1)
    count, more, facets = 0, False, Facets()
    if search_query.cursor is None:
        counts = Counter(
            (row["channel_id"], row["nick"], from_micros(row["time"]).date()) for row in window.rows
        )
        more = window.more
        if window.more and not window.timed_out:
            more = not scanner.count(window.bottom - 1, counts)
        count, facets = counts.total(), _facets(counts, conditions.channels)
    hurried = window.timed_out and seen == len(window.rows)
    return SearchPage(
        hits=tuple(Hit(event, matcher.snippet(event.text)) for event in events),
        next_cursor=None if following is None else str(following),
        count=count,
        more_than_counted=more,
        searched_back_to=from_micros(window.bottom * 1000) if hurried else None,
        facets=facets,
        notes=parsed.notes,
    )


def _facets(counts: LineCounts, channels: VisibleChannels) -> Facets:
    places, months = Counter[int](), Counter[str]()
    nicks: dict[str, tuple[str, int]] = {}  # by folded name, with the latest spelling
    for (channel, nick, day), count in counts.items():
        places[channel] += count
        months[f"{day:%Y-%m}"] += count
        spelling, known = nicks.get(fold_name(nick), (nick, 0))
        nicks[fold_name(nick)] = spelling, known + count
    return Facets(
        channels=tuple(
            (Place(channels.rows[each]["network"], channels.rows[each]["name"]), count)
            for each, count in places.most_common(_MAX_FACET_VALUES)
        ),
        nicks=tuple(sorted(nicks.values(), key=lambda each: -each[1])[:_MAX_FACET_VALUES]),
        months=tuple(sorted(months.items(), reverse=True)[:_MAX_FACET_VALUES]),
    )
