"""Lines that answer a plain question, best first, each with the chance that it does.

The index is asked for lines with the question's words, rarest words first: all lines with a rare
word, and those that have a common word together with another one. The stretches are read from the
newest backwards, until time is over. The best few hundred lines, and the newest lines of the log
whatever their words, are then looked at one by one (storage/passage_score.py).
"""

from __future__ import annotations

import json
import math
import re
import sqlite3
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from heapq import nlargest

from storage.database import Row, from_micros
from storage.event import SPOKEN, Event
from storage.event_row import event_of
from storage.log_query import Query, find, found, id_range
from storage.passage_score import FEATURES, Asking, Line, chance, features
from storage.question_words import (
    QuestionWord,
    QuestionWords,
    asks,
    is_number,
    question_words,
    shows,
)
from storage.replies import NEXT, replies
from storage.search_plan import Filter
from storage.search_text import Parsed
from storage.search_window import LAST_ID
from storage.text_index import STRETCH
from storage.word_forms import index_terms

SAID_HERE = 0.4
"""The score from which on a line is an answer; when all are below, nobody has said it here."""

_RECENT = 300  # newest lines that are looked at whatever their words
_CHOSEN = 220  # lines of the index that are looked at
_SAMPLED = 40_000  # lines, about, in which the words are counted
_COUNTED = 3_000  # lines of a stretch with a word that are counted at most
_READ = 40_000  # lines with a rare word that are read from the whole index, about
_COMMON = 800  # lines of a stretch with two words
_BUDGET = 0.08  # seconds of work; a busy machine makes no answer partial
_PATIENCE = 0.5  # seconds in all
_HEAVIEST = 7.0  # weight of a word
_NUMBER = 3.0  # of a number, which is about anything
_PRIOR = 3_000  # lines of ordinary English that count beside those of the log
_RELATED = 3  # words that may stand for one of the question
_ENOUGH = 0.8  # share of what the words weigh: then nobody looks for related words
_SAME = 0.75  # coverage of a question that asks the same
_TELLING = 12.0  # weight of the words that it has in common, at least
_FOLLOWED = 5  # questions whose replies are looked at
_LACKING = 0.4  # of a reply without what is asked for
_MEANWHILE = 3_600_000  # of ids, milliseconds, until a reply
_COVERAGE = FEATURES.index("exact")
_STEPS = 2_000  # instructions of SQLite's machine between two looks at the clock
_ROWS = "SELECT * FROM events WHERE id IN (SELECT value FROM json_each(?)) ORDER BY id DESC"


@dataclass(frozen=True, slots=True)
class Passage:
    """A line, and the chance from 0 to 1 that it answers the question. `coverage` is the share of
    what the question's words weigh that the line has; `asked` the question of somebody else to
    which it is a reply, where it was found by that."""

    event: Event
    score: float
    coverage: float = 0.0
    asked: Event | None = None


@dataclass(frozen=True, slots=True)
class Passages:
    """Lines that may answer a question, best first. `searched_back_to` is the time down to which
    the log was searched before time was over, None when all of it was."""

    found: tuple[Passage, ...] = ()
    searched_back_to: datetime | None = None

    @property
    def said(self) -> tuple[Passage, ...]:
        """Those that are an answer."""
        return tuple(each for each in self.found if each.score >= SAID_HERE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoken:
    """Which lines are wanted. None are commands, which begin with `prefix`, or are said to one of
    `nicks`, which are the bot's, or of people that somebody `hides`. With `mentions` a line that
    has the words is wanted, be it an answer or not; with `oldest` the oldest of equals."""

    prefix: str = "."
    nicks: Collection[str] = ()
    hides: Callable[[Event], bool] = lambda _: False
    mentions: bool = False
    oldest: bool = False

    def leaves_out(self, event: Event) -> bool:
        """Whether an event is none that may be found."""
        text = event.text.lstrip()
        if self.prefix and re.match(rf"{re.escape(self.prefix)}[a-zA-Z]", text):
            return True
        nicks = "|".join(map(re.escape, self.nicks))
        if nicks and re.match(rf"@?(?:{nicks})\s*[:,]", text, re.IGNORECASE):
            return True
        return event.own or not text or self.hides(event)


PEOPLE = Spoken()
"""What people say, where the bot has no name yet."""


def find_passages(
    connection: sqlite3.Connection, question: str, within: Query, spoken: Spoken = PEOPLE
) -> Passages:
    """The lines that answer `question` likeliest: `within.limit` at most.

    Nothing is found when the question has no word that says anything.
    """
    search = _search_of(connection, question, within, spoken)
    return Passages() if search is None else search.run(within.limit)


def looked_at(
    connection: sqlite3.Connection, question: str, within: Query
) -> list[tuple[Event, list[float]]]:
    """The lines that `find_passages` scores, each with its features: to fit the weights."""
    search = _search_of(connection, question, within, PEOPLE)
    return [] if search is None else [(event, values) for event, values in search.lines()]


def _search_of(
    connection: sqlite3.Connection, question: str, within: Query, spoken: Spoken
) -> _Search | None:
    asked = question_words(question)
    types = SPOKEN if within.types is None else SPOKEN & within.types
    filtering = Filter(connection, replace(within, own=False, types=types), Parsed())
    if not asked.words or not filtering.channels.rows or not within.limit:
        return None
    return _Search(connection, filtering, asked, spoken)


class _Search:
    """One search on one connection."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        filtering: Filter,
        asked: QuestionWords,
        spoken: Spoken,
    ) -> None:
        self._connection = connection
        self._filter = filtering
        self._spoken = spoken
        self._index = _Index(connection, filtering, oldest=spoken.oldest)
        counts, counted = self._index.frequencies(asked.words)
        weights = {word.root: _weight(word, counts[word.root], counted) for word in asked.words}
        self._asking = Asking(asked, weights, self._index.lines)
        self._plans = list(_plans(self._asking, counts, counted))
        self._further = [] if spoken.mentions else list(_related_plans(self._asking))
        self._reached: int | None = None

    def run(self, limit: int) -> Passages:
        """All steps in their order."""
        passages = []
        for event, values in self.lines():
            share = values[_COVERAGE]
            score = share if self._spoken.mentions else chance(values)
            passages.append(Passage(event, score, share))
        if not self._spoken.mentions:
            passages += self._replies(passages)
        sign = 1 if self._spoken.oldest else -1
        best = _distinct(sorted(passages, key=lambda each: (-each.score, sign * each.event.id)))
        back = None if self._reached is None else from_micros(self._reached * 1000)
        return Passages(tuple(best[:limit]), back)

    def lines(self) -> Iterator[tuple[Event, list[float]]]:
        """The lines that may be answers, with their features: the newest ones whatever their words,
        and those that the index has."""
        ids, self._reached = self._index.candidates(
            self._plans, self._further, _ENOUGH * self._asking.whole
        )
        recent = self._recent()
        known = {row["id"] for row in recent}
        yield from self._fitting(recent, recent=True)
        yield from self._fitting(self._rows(set(ids) - known), recent=False)

    def _recent(self) -> Sequence[Row]:
        query = replace(self._filter.query, limit=_RECENT)
        return found(self._connection, query, self._filter.channels, newest=True)

    def _rows(self, ids: Iterable[int]) -> Iterator[Row]:
        rows = self._connection.execute(_ROWS, [json.dumps(list(ids))])
        return (row for row in rows if self._filter.fits(row))

    def _fitting(self, rows: Iterable[Row], *, recent: bool) -> Iterator[tuple[Event, list[float]]]:
        for row in rows:
            line = Line.of(row["text"], row["nick"])
            if self._asking.touches(line):
                event = self._event(row)
                if not self._spoken.leaves_out(event):
                    yield event, features(self._asking, line, recent=recent)

    def _replies(self, passages: Sequence[Passage]) -> Iterator[Passage]:
        """Lines that reply to those who have asked the same."""
        same = [
            each
            for each in passages
            if each.coverage >= _SAME
            and each.coverage * self._asking.whole >= _TELLING
            and asks(each.event.text)
        ]
        same.sort(key=lambda each: (-each.coverage, -each.event.id))
        expected = self._asking.question.expected
        for passage in same[:_FOLLOWED]:
            for reply in replies(passage.event, self._following(passage.event)):
                lacks = shows(expected, reply.event.text) is False
                score = passage.coverage * reply.chance * (_LACKING if lacks else 1)
                yield Passage(reply.event, score, passage.coverage, passage.event)

    def _following(self, asked: Event) -> list[Event]:
        """The lines just after a question on its channel."""
        query = replace(
            self._filter.query,
            network=asked.network,
            channel=asked.channel,
            nick=None,
            after_id=asked.id,
            before_id=min(self._filter.query.before_id or LAST_ID, asked.id + _MEANWHILE),
            limit=NEXT,
        )
        events = find(self._connection, query, newest=False)
        return [event for event in events if not self._spoken.leaves_out(event)]

    def _event(self, row: Row) -> Event:
        return event_of(row, self._filter.channels.rows[row["channel_id"]])


class _Index:
    """The index of words, asked for the lines that a search may find."""

    def __init__(self, connection: sqlite3.Connection, filtering: Filter, *, oldest: bool) -> None:
        self._connection = connection
        self._sign = 1 if oldest else -1
        self._have, self._lack = filtering.tags()
        first, last = id_range(connection, filtering.query)
        self._first, self._last = first or 1, LAST_ID if last is None else last
        rows = connection.execute(
            "SELECT number, lines FROM partitions WHERE lines > 0 AND number BETWEEN ? AND ?"
            " ORDER BY number DESC",
            [self._first >> STRETCH, self._last >> STRETCH],
        )
        self._stretches = [(row["number"], row["lines"]) for row in rows]
        self._indexed = sum(int(lines) for _, lines in self._stretches) or 1
        self.lines = self._within(filtering)
        self._until = time.thread_time() + _BUDGET
        self._patience = time.monotonic() + _PATIENCE

    def _within(self, filtering: Filter) -> int:
        """About how many lines may be found, whatever their words."""
        whole = self._indexed
        if not filtering.channels.others:
            return whole
        rows = self._connection.execute(
            "SELECT sum(lines) FROM totals WHERE channel_id IN (SELECT value FROM json_each(?))",
            [json.dumps(list(filtering.channels.rows))],
        )
        return min(whole, int(rows.fetchone()[0] or 0))

    def frequencies(self, words: Sequence[QuestionWord]) -> tuple[dict[str, int], int]:
        """How many of the newest lines have each word, and about how many lines those are."""
        counts = {word.root: 0 for word in words}
        sampled = 0
        for number, lines in self._stretches:
            for word in words:
                sql = (
                    f"SELECT count(*) FROM (SELECT 1 FROM words_{number}"
                    f" WHERE words_{number} MATCH ? LIMIT {_COUNTED})"
                )
                match = f"text : ({_any(index_terms(word.forms[0]))})"
                counts[word.root] += self._connection.execute(sql, [match]).fetchone()[0]
            sampled += lines
            if sampled > _SAMPLED:
                break
        return counts, sampled

    def candidates(
        self, plans: Sequence[_Plan], further: Sequence[_Plan], enough: float
    ) -> tuple[list[int], int | None]:
        """The ids of the lines that have most of what the question's words weigh; and down to
        which id was searched by `plans`, None for all. Only where these find no line with
        `enough`, `further` ones are asked for, as long as there is time."""
        sums: dict[int, float] = {}
        reached = self._collect(sums, plans)
        if reached is None and max(sums.values(), default=0) < enough:
            self._collect(sums, further)
        best = nlargest(_CHOSEN, sums, key=lambda each: (sums[each], -self._sign * each))
        return best, reached

    def _collect(self, sums: dict[int, float], plans: Sequence[_Plan]) -> int | None:
        """Add what plans find to `sums` by id; down to which id there was time, None for all."""
        reached: int | None = None
        try:
            self._connection.set_progress_handler(self._late, _STEPS)
            for number, lines in self._stretches[:: -self._sign]:
                self._add(sums, number, plans, max(200, _READ * lines // self._indexed))
                reached = number << STRETCH
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                raise
            return reached or self._last
        finally:
            self._connection.set_progress_handler(None, 0)
        return None

    def _add(self, sums: dict[int, float], number: int, plans: Sequence[_Plan], most: int) -> None:
        first = max(self._first, number << STRETCH)
        last = min(self._last, ((number + 1) << STRETCH) - 1)
        order = "ASC" if self._sign > 0 else "DESC"
        sql = (
            f"SELECT rowid FROM words_{number} WHERE words_{number} MATCH ?"
            f" AND rowid BETWEEN ? AND ? ORDER BY rowid {order} LIMIT ?"
        )
        for plan in plans:
            match = self._match(plan)
            rows = self._connection.execute(sql, [match, first, last, most])
            for (event_id,) in rows:
                sums[event_id] = sums.get(event_id, 0.0) + plan.weight

    def _match(self, plan: _Plan) -> str:
        wanted = [f"text : ({terms})" for terms in plan.terms]
        wanted += [f"tags : ({tag})" for tag in self._have]
        lack = " OR ".join(f'tags : "{tag}"' for tag in self._lack)
        return f"({' AND '.join(wanted)})" + (f" NOT ({lack})" if lack else "")

    def _late(self) -> bool:
        return time.thread_time() > self._until or time.monotonic() > self._patience


@dataclass(frozen=True, slots=True)
class _Plan:
    """Lines that have any of each of `terms`, and what that is worth."""

    terms: tuple[str, ...]
    weight: float


def _plans(asking: Asking, counts: Mapping[str, int], counted: int) -> Iterator[_Plan]:
    """What to ask the index for, the rarest words first: lines with a rare word, and with a common
    one together with any other."""
    words = sorted(asking.question.words, key=lambda word: counts[word.root])
    share = _READ / max(asking.lines, _READ)
    for word in words:
        own, others = index_terms(word.forms[0]), _other_terms(words, word)
        terms: tuple[str, ...] = (_any(own),)
        if others and counts[word.root] > share * max(counted, 1):
            terms = (_any(own), _any(others))
        yield _Plan(terms, asking.weights[word.root])


def _related_plans(asking: Asking) -> Iterator[_Plan]:
    """The same for what may stand for a word, together with another word of the question."""
    words = asking.question.words
    for word in words:
        related, others = list(word.related.items())[:_RELATED], _other_terms(words, word)
        if related and others:
            likeness = sum(share for _, share in related) / len(related)
            terms = [term for root, _ in related for term in index_terms(root)]
            yield _Plan((_any(terms), _any(others)), asking.weights[word.root] * likeness)


def _other_terms(words: Sequence[QuestionWord], word: QuestionWord) -> list[str]:
    return [term for each in words if each is not word for term in index_terms(each.forms[0])]


def _weight(word: QuestionWord, count: int, counted: int) -> float:
    """How much a word tells in this log: its inverse document frequency, at most 7."""
    expected = _PRIOR * math.exp(-word.rarity)
    heaviest = _NUMBER if is_number(word.root) else _HEAVIEST
    return min(heaviest, math.log((counted + _PRIOR) / (count + expected)))


def _any(terms: Iterable[str]) -> str:
    return " OR ".join(dict.fromkeys(terms))


def _distinct(passages: Iterable[Passage]) -> list[Passage]:
    """The best of those that say the same."""
    found: dict[str, Passage] = {}
    for passage in passages:
        found.setdefault(passage.event.text.strip().lower(), passage)
    return list(found.values())
