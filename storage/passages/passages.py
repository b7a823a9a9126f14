"""Lines that answer a plain question, best first, each with the chance that it does.

The index is asked for lines with the question's words, rarest words first: all lines with a rare
word, and those that have a common word together with another one. The partitions are read from the
newest backwards, until time is over. The best few hundred lines, and the newest lines of the log
whatever their words, are then looked at one by one (storage/passages/score.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from storage.chat_log.event import SPOKEN, Event
from storage.chat_log.event_table import event_of
from storage.chat_log.query import Query, find, query_rows
from storage.db.database import Connection, Row, from_micros
from storage.passages.index import PassageIndex, plans, related_plans, weight_of
from storage.passages.question_words import QuestionWords, asks, question_words, shows
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
from storage.search.planner import LineConditions
from storage.search.query_parser import ParsedQuery
from storage.search.scanner import LAST_ID

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
