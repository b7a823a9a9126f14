"""A parsed search as questions to the index. User text is always quoted: nothing that people type
can be an operator of FTS5 or an error."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass, replace

from storage import log_index
from storage.chat_log.event import SPOKEN, EventType
from storage.chat_log.query import Query, VisibleChannels, channels_in, query_rows
from storage.db.database import Row, to_micros
from storage.log_index import fold_name
from storage.search.matcher import Matcher, contains
from storage.search.query_parser import Clause, ParsedQuery, Term, TermKind

_MOST_CHANNELS = 24  # that are asked of the index; of more, each hit is looked at
_MOST_TRIGRAMS = 12  # of one part: with so many next to nothing else is found


@dataclass(frozen=True, slots=True)
class IdRange:
    """A range of ids, both ends with it, of one partition of the index."""

    number: int
    first: int
    last: int


class LineConditions:
    """Which lines a search may find at all, whatever their words."""

    def __init__(self, connection: sqlite3.Connection, within: Query, parsed: ParsedQuery) -> None:
        self.query = _narrow(within, parsed)
        self.channels = _choose_channels(channels_in(connection, self.query), parsed)
        self._nicks = {fold_name(nick) for nick in parsed.nicks}
        self._others = {fold_name(nick) for nick in parsed.other_nicks}
        self._since = self.query.since and to_micros(self.query.since)
        self._until = self.query.until and to_micros(self.query.until)

    @property
    def exact(self) -> bool:
        """True if the index itself knows what fits, so that hits need not be looked at."""
        outside = len(self.channels.others) <= _MOST_CHANNELS
        inside = not self.channels.public and len(self.channels.rows) <= _MOST_CHANNELS
        query = self.query
        timed = query.since is not None or query.until is not None
        return (inside or outside) and not timed and not (query.account or query.user or query.host)

    def fits(self, row: Row) -> bool:
        """Return True if a line may be found."""
        query = self.query
        return (
            row["channel_id"] in self.channels.rows
            and (not self._nicks or fold_name(row["nick"]) in self._nicks)
            and (query.nick is None or fold_name(row["nick"]) == fold_name(query.nick))
            and fold_name(row["nick"]) not in self._others
            and query.types is not None
            and row["type"] in query.types
            and query.own in (None, bool(row["own"]))
            and (self._since is None or row["time"] >= self._since)
            and (self._until is None or row["time"] < self._until)
            and all(
                wanted is None or row[column] == wanted
                for column, wanted in (
                    ("account", query.account),
                    ("user", query.user),
                    ("host", query.host),
                )
            )
        )

    def tags(self) -> tuple[list[str], list[str]]:
        """Return the tags that lines must have and must lack, as FTS5 expressions."""
        types = self.query.types or frozenset()
        have, lack = [], [log_index.nick_tag(nick) for nick in self._others]
        inside, outside = self.channels.rows, self.channels.others
        # Of all public channels, the private ones are the few; else those inside mostly are.
        if not self.channels.public and len(inside) <= _MOST_CHANNELS:
            have.append(_any(map(log_index.channel_tag, inside)))
        elif len(outside) <= _MOST_CHANNELS:
            lack += map(log_index.channel_tag, outside)
        if self._nicks:
            have.append(_any(map(log_index.nick_tag, self._nicks)))
        if self.query.nick is not None:
            have.append(_any([log_index.nick_tag(self.query.nick)]))
        if EventType.PRIVMSG not in types:
            have.append(_any(log_index.type_tag(kind) for kind in types))
        else:
            lack += [log_index.type_tag(kind) for kind in SPOKEN - types]
        if self.query.own:
            have.append(_any([log_index.OWN_TAG]))
        elif self.query.own is not None:
            lack.append(log_index.OWN_TAG)
        return have, lack


class ClausePlan:
    """The plan by which the lines of one clause are found.

    By whole words, by parts, by both, or, when there is neither, by looking at each line. Some hits
    must be looked at, for which there is `fits`.
    """

    def __init__(self, clause: Clause, filtering: LineConditions) -> None:
        self._filter = filtering
        self._have = [term.text for term in clause.have if term.kind is TermKind.PART]
        self._lack = [term.text for term in clause.lack if term.kind is TermKind.PART]
        wordy = [term for term in clause.lack if term.kind is not TermKind.PART]
        self._words = _words_match(clause, filtering)
        self._parts = _parts_match(self._have)
        self._lacking = Matcher(wordy) if wordy and not self._words else None
        self.whole = any(term.kind is TermKind.PREFIX for term in clause.have)
        """True if a part of a partition takes as long as all of it: so it is with prefixes."""
        self.plain = bool(clause.have) and all(term.kind is TermKind.WORD for term in clause.have)
        """True if it asks for whole words alone, by which little is read in vain."""
        looked_at = self._have or self._lack or self._lacking or not self._words
        self.exact = filtering.exact and not looked_at

    def ids(self, connection: sqlite3.Connection, id_range: IdRange, limit: int) -> list[int]:
        """Return the newest ids that may fit, newest first."""
        if not self._words and not self._parts:
            return self._scan(connection, id_range, limit)
        number, bounds = id_range.number, [id_range.first, id_range.last]
        table, match = (
            (f"words_{number}", self._words) if self._words else (f"parts_{number}", self._parts)
        )
        sql = f"SELECT rowid FROM {table} WHERE {table} MATCH ? AND rowid BETWEEN ? AND ?"
        values: list[object] = [match, *bounds]
        if self._words and self._parts:
            parts = f"parts_{number}"
            sql += f" AND rowid IN (SELECT rowid FROM {parts} WHERE {parts} MATCH ?"
            sql += " AND rowid BETWEEN ? AND ?)"
            values += [self._parts, *bounds]
        rows = connection.execute(f"{sql} ORDER BY rowid DESC LIMIT ?", [*values, limit])
        return [row[0] for row in rows]

    def fits(self, text: str) -> bool:
        """Return True if a text has what the index could not be asked for."""
        return (
            all(contains(text, part) for part in self._have)
            and not any(contains(text, part) for part in self._lack)
            and not (self._lacking is not None and self._lacking.matches(text))
        )

    def _scan(self, connection: sqlite3.Connection, id_range: IdRange, limit: int) -> list[int]:
        query = replace(
            self._filter.query,
            after_id=id_range.first - 1,
            before_id=id_range.last + 1,
            limit=limit,
        )
        # LIKE reads the lines themselves: only for what has neither a word nor three letters.
        likes = "".join(" AND text LIKE ? ESCAPE '\\'" for _ in self._have)
        extra = (likes, [f"%{_unlike(part)}%" for part in self._have])
        rows = query_rows(connection, query, self._filter.channels, newest=True, extra=extra)
        return [row["id"] for row in rows]


def _narrow(within: Query, parsed: ParsedQuery) -> Query:
    sinces = [time for time in (within.since, parsed.since) if time]
    untils = [time for time in (within.until, parsed.until) if time]
    alone = next(iter(parsed.nicks)) if len(parsed.nicks) == 1 else None
    return replace(
        within,
        types=SPOKEN if within.types is None else SPOKEN & within.types,
        nick=alone if within.nick is None else within.nick,
        since=max(sinces, default=None),
        until=min(untils, default=None),
    )


def _choose_channels(channels: VisibleChannels, parsed: ParsedQuery) -> VisibleChannels:
    """Keep those of the channels that the text of a search asks for."""

    def is_named(row: Row, names: Iterable[str]) -> bool:
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


def _words_match(clause: Clause, filtering: LineConditions) -> str:
    """Return the FTS5 query for the index of words, "" when there is no word to begin with."""
    have = [_phrase(term) for term in clause.have if term.kind is not TermKind.PART]
    if not have:
        return ""
    tags, lacking_tags = filtering.tags()
    wanted = [f"text : ({' AND '.join(have)})", *(f"tags : ({tag})" for tag in tags)]
    lack = [f"text : {_phrase(term)}" for term in clause.lack if term.kind is not TermKind.PART]
    lack += [f"tags : {_quote(tag)}" for tag in lacking_tags]
    unwanted = f" NOT ({' OR '.join(lack)})" if lack else ""
    return f"({' AND '.join(wanted)}){unwanted}"


def _parts_match(parts: Iterable[str]) -> str:
    """Return the FTS5 query for the index of parts, "" when all are too short for it."""
    trigrams: list[str] = []
    for part in parts:
        each = list(dict.fromkeys(part[i : i + 3] for i in range(len(part) - 2)))
        step = max(1, len(each) // _MOST_TRIGRAMS)
        trigrams += each[::step]
    return " AND ".join(map(_quote, trigrams))


def _phrase(term: Term) -> str:
    return _quote(term.text) + (" *" if term.kind is TermKind.PREFIX else "")


def _any(tags: Iterable[str]) -> str:
    return " OR ".join(map(_quote, tags)) or '"z"'


def _quote(text: str) -> str:
    """Return a string literal of FTS5; a NUL would end the whole query."""
    return '"' + text.replace('"', '""').replace("\0", " ") + '"'


def _unlike(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
