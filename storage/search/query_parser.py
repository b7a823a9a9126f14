"""The parser of the search language: words, operators and filters.

No input is an error: what cannot be an operator or a filter is a word.

    frogs awake            both words, anywhere in the line
    frogs or toads         either; `and` may be written, and binds more tightly
    "frogs are"            a phrase
    -frogs, not frogs      lines without it
    frog*                  words with this beginning, of two letters or more
    *rog*, lib/frog.py     a part of the text, whatever stands around it
    from:ada               said by ada; also user:, nick:
    in:#pond               on a channel; also channel:, and in:network/#pond
    -from:ada, -in:#pond   by others, elsewhere
    since:2026-03-01       from that day, month, year or time on
    until:2026-03          up to the end of that day, month or year, or up to that time
    hours:24               in the last hours
"""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from enum import Enum, StrEnum
from string import punctuation

from storage.chat_log.event import NICK_GAP
from storage.text_index.words import words

_PIECE = re.compile(
    r'(?P<minus>-(?!-))?(?:(?P<key>[a-zA-Z]+):)?(?:"(?P<quoted>[^"]*)"?|(?P<bare>\S+))'
)
_KEYS = {
    **dict.fromkeys(("from", "user", "nick"), "nick"),
    **dict.fromkeys(("in", "channel"), "channel"),
    **{key: key for key in ("since", "until", "hours")},
}
# What other search boxes call them, and people therefore write.
_SYNONYMS = {"before": "until", "to": "until", "after": "since", "date": "since", "by": "from"}
_EXAMPLES = {"since": "since:2026-03-01", "until": "until:2026-03", "hours": "hours:24"}
_EDGES = "\"'.,;:!?()[]{}<>"
_MOMENT = re.compile(r"(\d{4})(?:-(\d\d?)(?:-(\d\d?))?)?")
_MOST_HOURS = 24 * 366 * 1000
_SHORTEST_PREFIX = 2  # letters: a single one would match a large part of all words
_MOST_TERMS = 24  # of a search; further ones, as of a pasted text, are ignored
# Scripts without spaces between words, which no tokenizer of SQLite splits: such text is searched
# as a PART.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fdf\u3005-\u30ff\u3400-\u9fff"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)


class Mode(StrEnum):
    """The operator that joins words which have none between them."""

    AND = "and"
    OR = "or"
    PHRASE = "phrase"


class TermKind(Enum):
    """The kinds of search terms, by how they match."""

    WORD = "word"
    PHRASE = "phrase"
    PREFIX = "prefix"
    PART = "part"


@dataclass(frozen=True, slots=True)
class Term:
    """A word, phrase, prefix or part to search for; a PART must occur literally except for its
    case, of the others accents are ignored too."""

    kind: TermKind
    text: str


@dataclass(frozen=True, slots=True)
class Clause:
    """A conjunction of terms: a line must have all of `include` and none of `exclude`."""

    include: tuple[Term, ...] = ()
    exclude: tuple[Term, ...] = ()


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A parsed search: a line must match any one of `clauses`, and every filter.

    `nicks` and `channels` ("#name" or "network/#name") are alternatives; an empty set does not
    restrict. `notes` tell people what was not understood as a filter, so that it counts as a word.
    """

    clauses: tuple[Clause, ...] = ()
    nicks: frozenset[str] = frozenset()
    other_nicks: frozenset[str] = frozenset()
    channels: frozenset[str] = frozenset()
    other_channels: frozenset[str] = frozenset()
    since: datetime | None = None
    until: datetime | None = None
    notes: tuple[str, ...] = field(default=(), compare=False)

    @property
    def terms(self) -> tuple[Term, ...]:
        """The distinct wanted terms of all clauses, for ranking and highlighting."""
        return tuple(dict.fromkeys(term for clause in self.clauses for term in clause.include))

    def __bool__(self) -> bool:
        return self != ParsedQuery()


def parse(text: str, mode: Mode = Mode.AND, *, now: datetime, zone: tzinfo = UTC) -> ParsedQuery:
    """Parse a search. `now` is an aware time; dates, and times without a zone, are in `zone`."""
    # Databases take no lone surrogates, and a NUL would end a query of FTS5.
    text = text.encode("utf-8", "replace").decode().replace("\0", " ")
    text = text.replace(NICK_GAP, "")
    if mode is Mode.PHRASE:
        term = _quoted_term(text.replace('"', " "))
        return ParsedQuery(clauses=(Clause(include=(term,)),) if term else ())
    reader = _Reader(mode, now, zone)
    for match in _PIECE.finditer(text):
        reader.read(match)
    return reader.result()


class _Reader:
    """Builds a `ParsedQuery` from the tokens of a search, one after another."""

    def __init__(self, mode: Mode, now: datetime, zone: tzinfo) -> None:
        self._mode = mode
        self._now = now
        self._zone = zone
        self._clauses = [Clause()]
        self._joined = False  # after an `and`: in mode OR the next term joins the clause before it
        self._negated = False
        self._count = 0
        self._names: defaultdict[tuple[str, bool], set[str]] = defaultdict(set)
        self._since: list[datetime] = []
        self._until: list[datetime] = []
        self._notes: list[str] = []

    def read(self, match: re.Match[str]) -> None:
        """Consume one token: an operator, a filter or a term."""
        key, quoted, bare = match["key"], match["quoted"], match["bare"]
        minus = bool(match["minus"]) or self._negated
        word = bare.lower() if bare and not key and not match["minus"] else ""
        if word in ("or", "|", "||"):
            self._clauses.append(Clause())
        elif word in ("and", "&&", "not"):
            self._negated = word == "not"
            self._joined = word == "and" or self._joined
        elif key and self._take_filter(_KEYS.get(key.lower()), quoted or bare or "", minus):
            self._negated = False
        else:
            self._negated = False
            name, value = (key or "").lower(), quoted or bare or ""
            if example := _EXAMPLES.get(_KEYS.get(name, "")):
                self._notes.append(f'"{name}:{value}" is not understood; write {example}.')
            elif name and value and name not in _KEYS:  # it looks like a filter
                close = difflib.get_close_matches(name, _KEYS, n=1, cutoff=0.75)
                if nearest := _SYNONYMS.get(name, next(iter(close), "")):
                    self._notes.append(
                        f'"{name}:" is not a filter of this search; "{nearest}:" is.'
                    )
            prefix = f"{key}:" if key else ""
            term = (
                _bare_term(f"{prefix}{bare}") if quoted is None else _quoted_term(prefix + quoted)
            )
            self._add(term, minus)

    def result(self) -> ParsedQuery:
        """Return the parsed query. In mode OR an excluded term is excluded from every clause."""
        exclude = tuple(term for clause in self._clauses for term in clause.exclude)
        clauses = [
            Clause(clause.include, exclude if self._mode is Mode.OR else clause.exclude)
            for clause in self._clauses
            if clause.include or (clause.exclude and self._mode is Mode.AND)
        ]
        if not clauses and exclude:  # mode OR, with excluded terms only
            clauses = [Clause(exclude=exclude)]
        return ParsedQuery(
            clauses=tuple(dict.fromkeys(clauses)),
            nicks=frozenset(self._names["nick", False]),
            other_nicks=frozenset(self._names["nick", True]),
            channels=frozenset(self._names["channel", False]),
            other_channels=frozenset(self._names["channel", True]),
            since=max(self._since, default=None),
            until=min(self._until, default=None),
            notes=tuple(dict.fromkeys(self._notes)),
        )

    def _add(self, term: Term | None, minus: bool) -> None:
        self._count += 1
        if term is None or self._count > _MOST_TERMS:
            return
        if self._mode is Mode.OR and self._clauses[-1].include and not minus and not self._joined:
            self._clauses.append(Clause())
        self._joined = False
        into = "exclude" if minus else "include"
        terms = (*getattr(self._clauses[-1], into), term)
        self._clauses[-1] = replace(self._clauses[-1], **{into: tuple(dict.fromkeys(terms))})

    def _take_filter(self, kind: str | None, value: str, minus: bool) -> bool:
        """Consume a token as a filter; return False if it is none, or makes no sense."""
        if kind is None or not value:
            return False
        if kind in ("nick", "channel"):
            self._names[kind, minus].add(value)
            return True
        if minus:
            return False
        try:
            if kind == "hours":
                if not 0 < (hours := float(value)) < _MOST_HOURS:
                    return False
                self._since.append(self._now - timedelta(hours=hours))
            elif kind == "since":
                self._since.append(_span(value, self._zone)[0])
            else:
                self._until.append(_span(value, self._zone)[1])
        except (ValueError, OverflowError):
            return False
        return True


def _span(value: str, zone: tzinfo) -> tuple[datetime, datetime]:
    """Return start and exclusive end, in UTC, of a year, month, day or (both equal) time. Raises
    ValueError and OverflowError."""
    match = _MOMENT.fullmatch(value)
    if match is None:
        moment = datetime.fromisoformat(value)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=zone)
        return moment.astimezone(UTC), moment.astimezone(UTC)
    year, month, day = (int(part) if part else None for part in match.groups())
    assert year is not None
    begin = datetime(year, month or 1, day or 1, tzinfo=zone)
    if day:  # the next midnight in `zone`, also where a day has 23 or 25 hours
        end = begin + timedelta(days=1)
    elif month:
        end = begin.replace(year=year + month // 12, month=month % 12 + 1)
    else:
        end = begin.replace(year=year + 1)
    return begin.astimezone(UTC), end.astimezone(UTC)


def _quoted_term(text: str) -> Term | None:
    text = " ".join(text.split())
    if not words(text) or _UNSPACED.search(text):
        return Term(TermKind.PART, text) if text else None
    return Term(TermKind.PHRASE if len(words(text)) > 1 else TermKind.WORD, text)


def _bare_term(text: str) -> Term | None:
    core = text.strip(_EDGES)
    inner = core.strip("*")
    if not inner or inner in punctuation:
        return None  # ":)" can be looked for in quotation marks
    # Anything but words, and what joins them in ordinary writing, is code or an address, which is
    # searched literally.
    is_wordy = words(inner) and not _UNSPACED.search(inner)
    if (
        core.startswith(("*", "-"))
        or not is_wordy
        or not all(char in "-'_’" or words(char) for char in inner)
    ):
        return Term(TermKind.PART, inner)
    if core.endswith("*") and len(inner) >= _SHORTEST_PREFIX:
        return Term(TermKind.PREFIX, inner)
    return Term(TermKind.PHRASE if len(words(inner)) > 1 else TermKind.WORD, inner)
