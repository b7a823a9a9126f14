"""Lines that answer a plain question, best first, each with the chance that it does.

The index is asked for lines with the question's words, in bounded work however large the log is:
all lines with a rare word, and those that have a common word together with another one. Both ends
of the log are within reach: the partitions are read from the newest backwards, or from the oldest
on, until time is over. The best few hundred lines, and the newest lines of the log whatever their
words, are then looked at one by one (storage/passages/score.py).
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from heapq import nlargest

from storage.chat_log.event import SPOKEN, Event
from storage.chat_log.event_table import event_of
from storage.chat_log.query import Query, find, id_range, query_rows
from storage.connection import Connection, Dialect, Row
from storage.db.database import from_micros
from storage.db.sqlite import Interrupted, interruptible
from storage.log_index import PARTITION_BITS, nick_tag, text_index
from storage.passages.replies import NEXT, replies
from storage.passages.score import (
    FEATURES,
    SpokenLine,
    WeighedQuestion,
    as_statement,
    chance,
    features,
    rounded_log_odds,
)
from storage.passages.words import (
    QuestionWord,
    QuestionWords,
    asks,
    index_terms,
    is_number,
    question_words,
    shows,
)
from storage.search.planner import LineConditions
from storage.search.query_parser import ParsedQuery
from storage.search.scanner import LAST_ID
from storage.text_index.model import IdRange, Phrase, WordMatch

_CHOSEN = 220  # lines that are looked at
_LEAST_SHARE = 0.5  # of what the best line has, that a line must have to be looked at
_SAMPLED = 40_000  # lines, about, in which the words are counted
_COUNTED = 3_000  # lines of a partition with a word that are counted at most
_READ = 40_000  # lines with a rare word that are read from the whole index, about
_LEAST_READ = 200  # the same from a partition
# Seconds of work; with SQLite, which works in our thread, a busy machine makes no answer partial.
_BUDGETS = {Dialect.SQLITE: 0.08, Dialect.POSTGRES: 0.24}
_FURTHER = 0.03  # of which for related words, at most
_PATIENCE = 0.5  # seconds in all
_HEAVIEST = 7.0  # weight of a word
_NUMBER = 3.0  # of a number, which is about anything
_PRIOR = 3_000  # lines of ordinary English that count beside those of the log
_RELATED = 3  # words that may stand for one of the question


class PassageIndex:
    """The index of words, asked for the lines that a search may find."""

    def __init__(self, connection: Connection, filtering: LineConditions, *, oldest: bool) -> None:
        self._connection = connection
        self._sign = 1 if oldest else -1
        self._have, self._lack = filtering.tags()
        first, last = id_range(connection, filtering.query)
        self._first, self._last = first or 1, LAST_ID if last is None else last
        rows = connection.execute(
            "SELECT number, lines FROM partitions WHERE lines > 0 AND number BETWEEN ? AND ?"
            " ORDER BY number DESC",
            [self._first >> PARTITION_BITS, self._last >> PARTITION_BITS],
        )
        self._partitions = [(row["number"], row["lines"]) for row in rows]
        self._indexed = sum(int(lines) for _, lines in self._partitions) or 1
        self.lines = self._within(filtering)
        self._index = text_index(connection)
        # SQLite works in our thread; another database works while we wait.
        self._clock = time.thread_time if connection.dialect is Dialect.SQLITE else time.monotonic
        self._until = self._clock() + _BUDGETS[connection.dialect]
        self._patience = time.monotonic() + _PATIENCE

    def _within(self, filtering: LineConditions) -> int:
        """About how many lines may be found, whatever their words."""
        whole = self._indexed
        if not filtering.channels.others:
            return whole
        rows = self._connection.execute(
            "SELECT sum(lines) FROM totals WHERE channel_id IN"
            " (SELECT CAST(value AS BIGINT) FROM json_each(?))",
            [json.dumps(list(filtering.channels.rows))],
        )
        return min(whole, int(rows.fetchone()[0] or 0))

    def nicks(self, words: Sequence[QuestionWord]) -> frozenset[str]:
        """Find those of the words, by their roots, that are also nicks that have spoken."""
        sql = "SELECT EXISTS (SELECT 1 FROM people_days WHERE nick = ?)"
        return frozenset(
            word.root
            for word in words
            if self._connection.execute(sql, [word.forms[0]]).fetchone()[0]
        )

    def frequencies(self, words: Sequence[QuestionWord]) -> tuple[dict[str, int], int]:
        """Count the newest lines that have each word, and about how many lines those are."""
        counts = {word.root: 0 for word in words}
        sampled = 0
        for number, lines in self._partitions:
            for word in words:
                match = WordMatch((index_terms(word.forms[0]),))
                counts[word.root] += self._index.count(self._connection, number, match, _COUNTED)
            sampled += lines
            if sampled > _SAMPLED:
                break
        return counts, sampled

    def candidates(
        self, plans: Sequence[IndexPlan], further: Sequence[IndexPlan], enough: float
    ) -> tuple[list[int], int | None]:
        """Return the ids of the lines that have most of what the question's words weigh; and down
        to which id was searched by `plans`, None for all. Only where these find no line with
        `enough`, `further` ones are asked for, as long as there is time."""
        sums: dict[int, float] = {}
        reached = self._collect(sums, plans)
        if reached is None and max(sums.values(), default=0) < enough:
            self._until = min(self._until, self._clock() + _FURTHER)
            self._collect(sums, further)
        least = _LEAST_SHARE * max(sums.values(), default=0)
        hopeful = [each for each, weight in sums.items() if weight >= least]
        best = nlargest(_CHOSEN, hopeful, key=lambda each: (sums[each], -self._sign * each))
        return best, reached

    def _collect(self, sums: dict[int, float], plans: Sequence[IndexPlan]) -> int | None:
        """Add what plans find to `sums` by id; down to which id there was time, None for all."""
        reached: int | None = None
        try:
            with interruptible(self._connection, self._late):
                for number, lines in self._partitions[:: -self._sign]:
                    self._add(sums, number, plans, max(_LEAST_READ, _READ * lines // self._indexed))
                    reached = number << PARTITION_BITS
        except Interrupted:
            return reached or min(self._last, (self._partitions[0][0] + 1) << PARTITION_BITS)
        return None

    def _add(
        self, sums: dict[int, float], number: int, plans: Sequence[IndexPlan], most: int
    ) -> None:
        first = max(self._first, number << PARTITION_BITS)
        last = min(self._last, ((number + 1) << PARTITION_BITS) - 1)
        order = "ASC" if self._sign > 0 else "DESC"
        id_range = IdRange(number, first, last)
        for plan in plans:
            if self._late():
                raise Interrupted
            match = self._match(plan)
            ids = self._index.matching(self._connection, id_range, match, order, most)
            for event_id in ids:
                sums[event_id] = sums.get(event_id, 0.0) + plan.weight

    def _match(self, plan: IndexPlan) -> WordMatch:
        nick = ((nick_tag(plan.nick),),) if plan.nick else ()
        return WordMatch(plan.terms, (*self._have, *nick), no_tags=self._lack)

    def _late(self) -> bool:
        return self._clock() > self._until or time.monotonic() > self._patience


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """Lines that have any of each of `terms`, of `nick` where it is said, and what that is
    worth."""

    terms: tuple[tuple[Phrase, ...], ...]
    weight: float
    nick: str = ""


def plans(
    asking: WeighedQuestion, counts: Mapping[str, int], counted: int, nicks: Collection[str]
) -> Iterator[IndexPlan]:
    """Return what to ask the index for, the rarest words first.

    Lines with a rare word, and with a common one together with any other; and what one of `nicks`
    said with any other.
    """
    words = sorted(asking.question.words, key=lambda word: counts[word.root])
    share = _READ / max(asking.lines, _READ)
    for word in words:
        own, others = index_terms(word.forms[0]), _other_terms(words, word)
        terms: tuple[tuple[Phrase, ...], ...] = (own,)
        if others and counts[word.root] > share * max(counted, 1):
            terms = (own, others)
        yield IndexPlan(terms, asking.weights[word.root])
        if word.root in nicks and others:
            yield IndexPlan((others,), asking.weights[word.root], word.forms[0])


def related_plans(asking: WeighedQuestion) -> Iterator[IndexPlan]:
    """Return the plans for what may stand for a word, together with another word of the
    question."""
    words = asking.question.words
    for word in words:
        related, others = list(word.related.items())[:_RELATED], _other_terms(words, word)
        if related and others:
            likeness = sum(share for _, share in related) / len(related)
            terms = tuple(term for root, _ in related for term in index_terms(root))
            yield IndexPlan((terms, others), asking.weights[word.root] * likeness)


def _other_terms(words: Sequence[QuestionWord], word: QuestionWord) -> tuple[Phrase, ...]:
    others = (each for each in words if each is not word)
    return tuple(term for each in others for term in index_terms(each.forms[0]))


def weight_of(word: QuestionWord, count: int, counted: int) -> float:
    """Return the inverse document frequency of a word in this log, at most 7."""
    expected = _PRIOR * math.exp(-word.rarity)
    heaviest = _NUMBER if is_number(word.root) else _HEAVIEST
    return min(heaviest, math.log((counted + _PRIOR) / (count + expected)))


SAID_HERE = 0.25
"""The score from which on a line is an answer; when all are below, nobody has said it here."""
MOST_OF_QUESTION = 0.2
"""The most that a line is worth which is itself a question."""

_RECENT = 300  # newest lines that are looked at whatever their words
_ENOUGH = 0.8  # share of what the words weigh: then nobody looks for related words
_SAME = 0.75  # coverage of a question that asks the same
_FOLLOWED = 5  # questions whose replies are looked at
_LACKING = 0.3  # of a reply without what is asked for
_MEANWHILE = 3_600_000  # of ids, milliseconds, until a reply
_COVERAGE = FEATURES.index("exact")
_ROWS = """
SELECT * FROM events WHERE id IN (SELECT CAST(value AS BIGINT) FROM json_each(?))
ORDER BY id DESC"""


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

    items: tuple[Passage, ...] = ()
    searched_back_to: datetime | None = None

    @property
    def answers(self) -> tuple[Passage, ...]:
        """The passages that are an answer."""
        return tuple(each for each in self.items if each.score >= SAID_HERE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFilter:
    """Which lines are wanted. None are commands, which begin with `prefix`, or are said to one of
    `nicks`, which are the bot's, or of people that somebody `hides`. With `mentions` a line that
    has the words is wanted, be it an answer or not; with `oldest` the oldest of equals."""

    prefix: str = "."
    nicks: Collection[str] = ()
    hides: Callable[[Event], bool] = lambda _: False
    mentions: bool = False
    oldest: bool = False

    def leaves_out(self, event: Event) -> bool:
        """Return True if an event may not be found."""
        text = event.text.lstrip()
        if self.prefix and re.match(rf"{re.escape(self.prefix)}[a-zA-Z]", text):
            return True
        nicks = "|".join(map(re.escape, self.nicks))
        if nicks and re.match(rf"@?(?:{nicks})\s*[:,]", text, re.IGNORECASE):
            return True
        return event.own or not text or self.hides(event)


PEOPLE = LineFilter()
"""The filter of what people say, where the bot has no name yet."""


def find_passages(
    connection: Connection, question: str, within: Query, line_filter: LineFilter = PEOPLE
) -> Passages:
    """Return the lines that answer `question` likeliest: `within.limit` at most.

    Nothing is found when the question has no word that says anything.
    """
    search = PassageSearch.prepare(connection, question, within, line_filter)
    return Passages() if search is None else search.run(within.limit)


def looked_at(
    connection: Connection, question: str, within: Query
) -> list[tuple[Event, list[float]]]:
    """Return the lines that `find_passages` scores, each with its features: to fit the weights."""
    search = PassageSearch.prepare(connection, question, within, PEOPLE)
    return [] if search is None else [(event, values) for event, values in search.lines()]


class PassageSearch:
    """A search on one connection."""

    def __init__(
        self,
        connection: Connection,
        filtering: LineConditions,
        asked: QuestionWords,
        line_filter: LineFilter,
    ) -> None:
        self._connection = connection
        self._filter = filtering
        self._line_filter = line_filter
        self._index = PassageIndex(connection, filtering, oldest=line_filter.oldest)
        counts, counted = self._index.frequencies(asked.words)
        weights = {word.root: weight_of(word, counts[word.root], counted) for word in asked.words}
        self._asking = WeighedQuestion(asked, weights, self._index.lines)
        self._plans = list(plans(self._asking, counts, counted, self._index.nicks(asked.words)))
        self._further = [] if line_filter.mentions else list(related_plans(self._asking))
        self._reached: int | None = None

    @classmethod
    def prepare(
        cls, connection: Connection, question: str, within: Query, line_filter: LineFilter
    ) -> PassageSearch | None:
        """Return the search for a question, None where there is nothing to look for: no word that
        says anything, no channel in scope, no line wanted."""
        asked = question_words(question)
        types = SPOKEN if within.types is None else SPOKEN & within.types
        filtering = LineConditions(
            connection, replace(within, own=False, types=types), ParsedQuery()
        )
        if not asked.words or not filtering.channels.rows or not within.limit:
            return None
        return cls(connection, filtering, asked, line_filter)

    @property
    def searched_back_to(self) -> datetime | None:
        """The time down to which the log was searched before time was over; None: all of it."""
        return None if self._reached is None else from_micros(self._reached * 1000)

    def run(self, limit: int) -> Passages:
        """Run all steps in their order."""
        passages: list[Passage] = []
        asked: list[Passage] = []
        for event, values in self.lines():
            share = values[_COVERAGE]
            score = share if self._line_filter.mentions else chance(values)
            if event.text.rstrip().endswith("?") and not self._line_filter.mentions:
                score = min(score, MOST_OF_QUESTION)
            if share >= _SAME and asks(event.text):
                asked.append(Passage(event, chance(as_statement(values)), share))
            passages.append(Passage(event, score, share))
        if not self._line_filter.mentions:
            passages += self._replies(asked)
        sign = 1 if self._line_filter.oldest else -1
        best = distinct(
            sorted(passages, key=lambda each: (-rounded_log_odds(each.score), sign * each.event.id))
        )
        return Passages(tuple(best[:limit]), self.searched_back_to)

    def events(self) -> Iterator[Event]:
        """Yield the newest lines whatever their words, then those that the index has."""
        for rows, _ in self._candidates():
            for row in rows:
                event = self._event(row)
                if not self._line_filter.leaves_out(event):
                    yield event

    def lines(self) -> Iterator[tuple[Event, list[float]]]:
        """The lines that may be answers, with their features: the newest ones whatever their words,
        and those that the index has."""
        for rows, recent in self._candidates():
            yield from self._fitting(rows, recent=recent)

    def _candidates(self) -> Iterator[tuple[Iterable[Row], bool]]:
        """The newest rows, and the others; each with whether it is the newest."""
        ids, self._reached = self._index.candidates(
            self._plans, self._further, _ENOUGH * self._asking.whole
        )
        recent = self._recent()
        known = {row["id"] for row in recent}
        yield recent, True
        yield self._rows(set(ids) - known), False

    def _recent(self) -> Sequence[Row]:
        query = replace(self._filter.query, limit=_RECENT)
        return query_rows(self._connection, query, self._filter.channels, newest=True)

    def _rows(self, ids: Iterable[int]) -> Iterator[Row]:
        rows = self._connection.execute(_ROWS, [json.dumps(list(ids))])
        return (row for row in rows if self._filter.fits(row))

    def _fitting(self, rows: Iterable[Row], *, recent: bool) -> Iterator[tuple[Event, list[float]]]:
        for row in rows:
            line = SpokenLine.from_text(row["text"], row["nick"])
            if self._asking.touches(line):
                event = self._event(row)
                if not self._line_filter.leaves_out(event):
                    yield event, features(self._asking, line, recent=recent)

    def _replies(self, asked: Sequence[Passage]) -> Iterator[Passage]:
        """Lines that reply to those who have `asked` the same, most likely."""
        best = sorted(asked, key=lambda each: (-each.score, -each.event.id))
        expected = self._asking.question.expected
        for passage in best[:_FOLLOWED]:
            for reply in replies(passage.event, self._following(passage.event)):
                lacks = shows(expected, reply.event.text) is False
                score = passage.score * reply.chance * (_LACKING if lacks else 1)
                yield Passage(reply.event, score, passage.coverage, passage.event)

    def _following(self, asked: Event) -> list[Event]:
        """Return the lines just after a question on its channel."""
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
        return [event for event in events if not self._line_filter.leaves_out(event)]

    def _event(self, row: Row) -> Event:
        return event_of(row, self._filter.channels.rows[row["channel_id"]])


def distinct(passages: Iterable[Passage]) -> list[Passage]:
    """Return the first of those that say the same."""
    found: dict[str, Passage] = {}
    for passage in passages:
        found.setdefault(passage.event.text.strip().lower(), passage)
    return list(found.values())
