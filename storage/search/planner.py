"""The planner of a search: index queries for its clauses, and checks for the hits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from storage import log_index
from storage.chat_log.event import SPOKEN, EventType
from storage.chat_log.event_table import Query, VisibleChannels, channels_in, query_rows
from storage.db.database import Connection, Row, to_micros
from storage.log_index import fold_name, text_index
from storage.search.matcher import Matcher
from storage.search.query_parser import Clause, ParsedQuery, Term, TermKind
from storage.text_index.model import IdRange, IndexQuery, Phrase, WordMatch
from storage.text_index.words import escape_like

_MAX_CHANNEL_TAGS = 24  # as tags of an index query; with more, the channel of each hit is checked
_MIN_PART_LENGTH = 3  # characters of a part that the trigram index can find


class LineConditions:
    """The non-text conditions of a search: channels, nicks, time range and event types."""

    def __init__(self, connection: Connection, within: Query, parsed: ParsedQuery) -> None:
        sinces = [time for time in (within.since, parsed.since) if time]
        untils = [time for time in (within.until, parsed.until) if time]
        alone = next(iter(parsed.nicks)) if len(parsed.nicks) == 1 else None
        self.query = replace(
            within,
            types=SPOKEN if within.types is None else SPOKEN & within.types,
            nick=alone if within.nick is None else within.nick,
            since=max(sinces, default=None),
            until=min(untils, default=None),
        )
        self.channels = _choose_channels(channels_in(connection, self.query), parsed)
        self._nicks = {fold_name(nick) for nick in parsed.nicks}
        self._excluded_nicks = {fold_name(nick) for nick in parsed.other_nicks}
        self._since = self.query.since and to_micros(self.query.since)
        self._until = self.query.until and to_micros(self.query.until)

    @property
    def exact(self) -> bool:
        """True if tags express all conditions, so that hits need no check."""
        # A time range is checked in the rows: an id may be later than the time of its event.
        outside = len(self.channels.others) <= _MAX_CHANNEL_TAGS
        inside = not self.channels.public and len(self.channels.rows) <= _MAX_CHANNEL_TAGS
        query = self.query
        timed = query.since is not None or query.until is not None
        return (inside or outside) and not timed and not (query.account or query.user or query.host)

    def fits(self, row: Row) -> bool:
        """Return True if a row of `events` meets all conditions."""
        query = self.query
        # The channel decides what a reader may see: it is checked here whatever the index has done.
        return (
            row["channel_id"] in self.channels.rows
            and (not self._nicks or fold_name(row["nick"]) in self._nicks)
            and (query.nick is None or fold_name(row["nick"]) == fold_name(query.nick))
            and fold_name(row["nick"]) not in self._excluded_nicks
            and query.types is not None
            and row["type"] in query.types
            and query.own in (None, bool(row["own"]))
            and (self._since is None or row["time"] >= self._since)
            and (self._until is None or row["time"] < self._until)
            and query.account in (None, row["account"])
            and query.user in (None, row["user"])
            and query.host in (None, row["host"])
        )

    def tags(self) -> tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]:
        """Return groups of tags of which a line must have one each, and those that exclude it."""
        types = self.query.types or frozenset()
        include: list[tuple[str, ...]] = []
        exclude = [log_index.nick_tag(nick) for nick in self._excluded_nicks]
        inside, outside = self.channels.rows, self.channels.others
        # Use the shorter list of tags: exclude the private channels when all public ones are
        # searched, else include the wanted ones.
        if not self.channels.public and len(inside) <= _MAX_CHANNEL_TAGS:
            include.append(tuple(map(log_index.channel_tag, inside)))
        elif len(outside) <= _MAX_CHANNEL_TAGS:
            exclude += map(log_index.channel_tag, outside)
        if self._nicks:
            include.append(tuple(map(log_index.nick_tag, self._nicks)))
        if self.query.nick is not None:
            include.append((log_index.nick_tag(self.query.nick),))
        # PRIVMSG, the most frequent type, has no tag. If it is wanted, other types are excluded.
        if EventType.PRIVMSG not in types:
            include.append(tuple(log_index.type_tag(kind) for kind in types))
        else:
            exclude += [log_index.type_tag(kind) for kind in SPOKEN - types]
        if self.query.own:
            include.append((log_index.OWN_TAG,))
        elif self.query.own is not None:
            exclude.append(log_index.OWN_TAG)
        return tuple(include), tuple(exclude)


class ClausePlan:
    """The plan for one clause: an index query, and the check of its hits.

    The query is for whole words, for parts or for both; a clause with neither scans the lines. What
    the query cannot express is checked by `fits`.
    """

    def __init__(self, clause: Clause, conditions: LineConditions) -> None:
        self._conditions = conditions
        self._included_parts = [term.text for term in clause.include if term.kind is TermKind.PART]
        self._excluded_parts = [term.text for term in clause.exclude if term.kind is TermKind.PART]
        excluded_words = [term for term in clause.exclude if term.kind is not TermKind.PART]
        # An index query cannot consist of exclusions only.
        wanted = tuple(
            (_phrase(each),) for each in clause.include if each.kind is not TermKind.PART
        )
        self._words = None
        if wanted:
            tags, no_tags = conditions.tags()
            self._words = WordMatch(wanted, tags, tuple(map(_phrase, excluded_words)), no_tags)
        self._parts = [part for part in self._included_parts if len(part) >= _MIN_PART_LENGTH]
        # Without a word to find, unwanted words cannot be part of an index query.
        self._excluded_words = (
            Matcher(excluded_words) if excluded_words and not self._words else None
        )
        self.scans_partition = any(term.kind is TermKind.PREFIX for term in clause.include)
        """True if a range of a partition takes as long as all of it: there is a prefix."""
        needs_check = (
            self._included_parts or self._excluded_parts or self._excluded_words or not self._words
        )
        self.index_exact = conditions.exact and not needs_check
        """True if every index hit is a result, so that hits can be counted in the index."""

    def ids(self, connection: Connection, ranges: Sequence[IdRange], limit: int) -> list[int]:
        """Return at most `limit` candidate line ids from `ranges` (both newest first)."""
        if self._words or self._parts:
            wanted = IndexQuery(self._words, self._parts, limit)
            return text_index(connection).ids(connection, ranges, wanted)
        query = replace(
            self._conditions.query,
            after_id=ranges[-1].first - 1,
            before_id=ranges[0].last + 1,
            limit=limit,
        )
        # LIKE scans the lines: only for clauses with neither a word nor a part of three letters.
        likes = "".join(" AND lower(text) LIKE lower(?) ESCAPE '\\'" for _ in self._included_parts)
        extra = (likes, [f"%{escape_like(part)}%" for part in self._included_parts])
        rows = query_rows(connection, query, self._conditions.channels, newest=True, extra=extra)
        return [row["id"] for row in rows]

    def fits(self, text: str) -> bool:
        """Return True if a text meets what the index query does not express."""
        lower = text.lower()  # a part must occur literally except for its case
        return (
            all(part.lower() in lower for part in self._included_parts)
            and not any(part.lower() in lower for part in self._excluded_parts)
            and not (self._excluded_words is not None and self._excluded_words.matches(text))
        )


def _choose_channels(channels: VisibleChannels, parsed: ParsedQuery) -> VisibleChannels:
    """Narrow the visible channels to those that the filters of a search name."""

    def is_named(row: Row, names: Iterable[str]) -> bool:
        # "#pond", "pond" and "network/#pond" name the same channel.
        name, network = fold_name(row["name"]), fold_name(row["network"])
        known = {name, name.lstrip("#&+!"), f"{network}/{name}"}
        return any(fold_name(each) in known for each in names)

    rows = {
        channel_id: row
        for channel_id, row in channels.rows.items()
        if (not parsed.channels or is_named(row, parsed.channels))
        and not is_named(row, parsed.other_channels)
    }
    others = channels.others | (channels.rows.keys() - rows.keys())
    return VisibleChannels(rows, others, channels.public and len(rows) == len(channels.rows))


def _phrase(term: Term) -> Phrase:
    return Phrase(term.text, prefix=term.kind is TermKind.PREFIX)
