"""Passage retrieval: lines that answer a plain question, best first, each with a probability.

Candidates come from the full-text index, with bounded work however large the log is: all lines with
a rare word of the question, and those that have a common word together with another one. The
partitions are read from the newest backwards, or from the oldest forwards, until time is over. The
best few hundred candidates, and the newest lines of the log whatever their words, are then scored
one by one (storage/passages/score.py).
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
from storage.passages.replies import FOLLOWING_LINES, replies
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

_MAX_SCORED = 220  # candidates that are scored
_MIN_WEIGHT_SHARE = 0.5  # of the best candidate's weight, which another one needs to be scored
_SAMPLE_LINES = 40_000  # lines in which the frequencies of words are counted, about
_MAX_COUNTED_LINES = 3_000  # lines with a word that are counted in a partition, at most
_MAX_IDS_PER_WORD = 40_000  # ids that are read for a word from the whole index, about
_MIN_IDS_PER_PARTITION = 200  # and at least from a partition, if there are so many
# Seconds: the thread's CPU time with SQLite, so that a busy machine makes no answer partial, and
# wall-clock time with PostgreSQL.
_BUDGETS = {Dialect.SQLITE: 0.08, Dialect.POSTGRES: 0.24}
_RELATED_BUDGET = 0.03  # the most of that for related words
_MAX_WALL_TIME = 0.5  # seconds of wall-clock time in all
_MAX_WEIGHT = 7.0  # greatest weight of a word
_MAX_NUMBER_WEIGHT = 3.0  # greatest weight of a number, which may be about anything
_PRIOR_LINES = 3_000  # lines of ordinary English by which frequencies in the log are smoothed
_MAX_RELATED_WORDS = 3  # related words that are searched for one of the question


class PassageIndex:
    """The full-text index, queried for candidates within the conditions of a search.

    `lines` is about the number of lines within them. With `oldest` the oldest lines come first.
    """

    def __init__(self, connection: Connection, conditions: LineConditions, *, oldest: bool) -> None:
        self._connection = connection
        self._sign = 1 if oldest else -1  # of ids, by which candidates are in order
        self._include, self._exclude = conditions.tags()
        first, last = id_range(connection, conditions.query)
        self._first, self._last = first or 1, LAST_ID if last is None else last
        rows = connection.execute(
            "SELECT number, lines FROM partitions WHERE lines > 0 AND number BETWEEN ? AND ?"
            " ORDER BY number DESC",
            [self._first >> PARTITION_BITS, self._last >> PARTITION_BITS],
        )
        self._partitions = [(row["number"], row["lines"]) for row in rows]
        self._indexed = sum(int(lines) for _, lines in self._partitions) or 1
        self.lines = self._within(conditions)
        self._index = text_index(connection)
        # CPU time of this thread measures SQLite; PostgreSQL works while the thread waits.
        self._clock = time.thread_time if connection.dialect is Dialect.SQLITE else time.monotonic
        self._until = self._clock() + _BUDGETS[connection.dialect]
        self._patience = time.monotonic() + _MAX_WALL_TIME

    def _within(self, conditions: LineConditions) -> int:
        """Estimate how many lines are within the conditions, whatever their words."""
        whole = self._indexed
        if not conditions.channels.others:
            return whole
        rows = self._connection.execute(
            "SELECT sum(lines) FROM totals WHERE channel_id IN"
            " (SELECT CAST(value AS BIGINT) FROM json_each(?))",
            [json.dumps(list(conditions.channels.rows))],
        )
        return min(whole, int(rows.fetchone()[0] or 0))

    def nicks(self, words: Sequence[QuestionWord]) -> frozenset[str]:
        """Return the roots of those words that are also nicks of people who have spoken."""
        sql = "SELECT EXISTS (SELECT 1 FROM people_days WHERE nick = ?)"
        return frozenset(
            word.root
            for word in words
            if self._connection.execute(sql, [word.forms[0]]).fetchone()[0]
        )

    def frequencies(self, words: Sequence[QuestionWord]) -> tuple[dict[str, int], int]:
        """Return how many of the newest lines have each word, by its root, and about how many lines
        were counted."""
        counts = {word.root: 0 for word in words}
        sampled = 0
        for number, lines in self._partitions:
            for word in words:
                match = WordMatch((index_terms(word.forms[0]),))
                counts[word.root] += self._index.count(
                    self._connection, number, match, _MAX_COUNTED_LINES
                )
            # Whole partitions, as the index can only count in those.
            sampled += lines
            if sampled > _SAMPLE_LINES:
                break
        return counts, sampled

    def newest(self, terms: tuple[tuple[Phrase, ...], ...], most: int) -> list[int]:
        """Return the ids of the newest lines with a phrase of each group in `terms`."""
        match = WordMatch(terms, self._include, no_tags=self._exclude)
        found: list[int] = []
        for number, _ in self._partitions:
            first = max(self._first, number << PARTITION_BITS)
            last = min(self._last, ((number + 1) << PARTITION_BITS) - 1)
            ids = IdRange(number, first, last)
            found += self._index.matching(self._connection, ids, match, "DESC", most - len(found))
            if len(found) == most:
                break
        return found

    def candidates(
        self, plans: Sequence[IndexPlan], further: Sequence[IndexPlan], enough: float
    ) -> tuple[list[int], int | None]:
        """Return the ids of the lines whose words weigh most together, and the id down to which
        `plans` were searched, or with `oldest` up to which; None for the whole log. Only if all of
        it was searched and no line weighs `enough`, the `further` plans are run, as long as there
        is time."""
        sums: dict[int, float] = {}
        reached = self._collect(sums, plans)
        if reached is None and max(sums.values(), default=0) < enough:
            self._until = min(self._until, self._clock() + _RELATED_BUDGET)
            self._collect(sums, further)
        least = _MIN_WEIGHT_SHARE * max(sums.values(), default=0)
        # A line that matches little of the question would only cost the time of scoring it.
        hopeful = [each for each, weight in sums.items() if weight >= least]
        best = nlargest(_MAX_SCORED, hopeful, key=lambda each: (sums[each], -self._sign * each))
        return best, reached

    def _collect(self, sums: dict[int, float], plans: Sequence[IndexPlan]) -> int | None:
        """Add the weights of the lines that plans find to `sums`, by id. Return the id down to
        which, or with `oldest` up to which, there was time; None if all partitions were read."""
        # Of the partition that is being read nothing is sure.
        is_forward = self._sign > 0
        reached = self._first if is_forward else min(self._last, time.time_ns() // 1_000_000)
        try:
            with interruptible(self._connection, self._late):
                for number, lines in self._partitions[:: -self._sign]:
                    if is_forward:
                        reached = max(reached, number << PARTITION_BITS)
                    self._add(
                        sums,
                        number,
                        plans,
                        max(_MIN_IDS_PER_PARTITION, _MAX_IDS_PER_WORD * lines // self._indexed),
                    )
                    if not is_forward:
                        reached = number << PARTITION_BITS
        except Interrupted:
            return reached
        return None

    def _add(
        self, sums: dict[int, float], number: int, plans: Sequence[IndexPlan], most: int
    ) -> None:
        # `interruptible` stops queries of SQLite only; hence the look at the clock before each.
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
        return WordMatch(plan.terms, (*self._include, *nick), no_tags=self._exclude)

    def _late(self) -> bool:
        return self._clock() > self._until or time.monotonic() > self._patience


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """A lookup in the index and its weight: lines that have a phrase of each group in `terms` and,
    if `nick` is set, were said by it."""

    terms: tuple[tuple[Phrase, ...], ...]
    weight: float
    nick: str = ""


def plans(
    asking: WeighedQuestion, counts: Mapping[str, int], counted: int, nicks: Collection[str]
) -> Iterator[IndexPlan]:
    """Yield the lookups for a question, its rarest words first.

    A rare word is looked up alone, a common one together with any other word of the question. A
    word that is in `nicks` also finds what this person said with any other word.
    """
    words = sorted(asking.question.words, key=lambda word: counts[word.root])
    # A word in a greater share of the lines is common: to read all of these would exceed
    # _MAX_IDS_PER_WORD.
    share = _MAX_IDS_PER_WORD / max(asking.lines, _MAX_IDS_PER_WORD)
    for word in words:
        own, others = index_terms(word.forms[0]), _other_terms(words, word)
        terms: tuple[tuple[Phrase, ...], ...] = (own,)
        if others and counts[word.root] > share * max(counted, 1):
            terms = (own, others)
        yield IndexPlan(terms, asking.weights[word.root])
        if word.root in nicks and others:
            yield IndexPlan((others,), asking.weights[word.root], word.forms[0])


def related_plans(asking: WeighedQuestion) -> Iterator[IndexPlan]:
    """Yield the lookups for words related to a word, together with any other word of the
    question."""
    words = asking.question.words
    for word in words:
        related, others = list(word.related.items())[:_MAX_RELATED_WORDS], _other_terms(words, word)
        if related and others:
            likeness = sum(share for _, share in related) / len(related)
            terms = tuple(term for root, _ in related for term in index_terms(root))
            yield IndexPlan((terms, others), asking.weights[word.root] * likeness)


def _other_terms(words: Sequence[QuestionWord], word: QuestionWord) -> tuple[Phrase, ...]:
    others = (each for each in words if each is not word)
    return tuple(term for each in others for term in index_terms(each.forms[0]))


def weight_of(word: QuestionWord, count: int, counted: int) -> float:
    """Return the inverse document frequency of a word in this log, smoothed by its frequency in
    English, and at most 7."""
    expected = _PRIOR_LINES * math.exp(-word.rarity)
    heaviest = _MAX_NUMBER_WEIGHT if is_number(word.root) else _MAX_WEIGHT
    return min(heaviest, math.log((counted + _PRIOR_LINES) / (count + expected)))


SAID_HERE = 0.25
"""The least score of an answer. If all lines score less, nobody has said it here."""
MAX_QUESTION_SCORE = 0.2
"""The greatest score of a line that is itself a question."""

_RECENT_LINES = 300  # newest lines that are scored whatever their words
# Share of the question's weight: with a line of so much, no related words are needed.
_SUFFICIENT_SHARE = 0.8
_SAME_QUESTION_COVERAGE = 0.75  # coverage from which on a question asks the same
_MAX_FOLLOWED_QUESTIONS = 5  # questions whose replies are scored
_LACKING_FACTOR = 0.3  # factor for the score of a reply without what is asked for
_REPLY_WINDOW_MS = 3_600_000  # ids, which are milliseconds, within which a reply follows
_COVERAGE_FEATURE, _MISSING_FEATURE = FEATURES.index("exact"), FEATURES.index("heaviest missing")
_ROWS = """
SELECT * FROM events WHERE id IN (SELECT CAST(value AS BIGINT) FROM json_each(?))
ORDER BY id DESC"""


@dataclass(frozen=True, slots=True)
class Passage:
    """A line and its score, the probability that it answers the question.

    `coverage` is the share of the weight of the question's words that the line has, `has_all` is
    True if it has all of them. `asked` is the question of somebody else to which the line replies,
    if it was found that way.
    """

    event: Event
    score: float
    coverage: float = 0.0
    asked: Event | None = None
    has_all: bool = False


@dataclass(frozen=True, slots=True)
class Passages:
    """The lines that may answer a question, best first.

    When time was over before all of the log was searched, `searched_back_to` is the time down to
    which it was, or `searched_up_to` the time up to which it was, if the oldest lines came first.
    """

    items: tuple[Passage, ...] = ()
    searched_back_to: datetime | None = None
    searched_up_to: datetime | None = None

    @property
    def answers(self) -> tuple[Passage, ...]:
        """The passages whose score makes them an answer."""
        return tuple(each for each in self.items if each.score >= SAID_HERE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFilter:
    """The rule for the lines that a passage search may return.

    Excluded are commands (they begin with `prefix`), lines addressed to one of the bot's `nicks`,
    the bot's own lines, and events for which `hides` returns True; with `own` only the last. With
    `mentions` lines score by the words of the question that they have, be they an answer or not.
    With `oldest` the oldest of equal lines comes first, else the newest.
    """

    prefix: str = "."
    nicks: Collection[str] = ()
    hides: Callable[[Event], bool] = lambda _: False
    own: bool = False
    mentions: bool = False
    oldest: bool = False

    def leaves_out(self, event: Event) -> bool:
        """Return True if an event must not be returned."""
        text = event.text.lstrip()
        if self.own:
            return not text or self.hides(event)
        if self.prefix and re.match(rf"{re.escape(self.prefix)}[a-zA-Z]", text):
            return True
        nicks = "|".join(map(re.escape, self.nicks))
        if nicks and re.match(rf"@?(?:{nicks})\s*[:,]", text, re.IGNORECASE):
            return True
        return event.own or not text or self.hides(event)


PEOPLE = LineFilter()
"""The default filter, for callers who do not know the bot's nicks."""

MAX_COUNTED = 1_000
"""The most lines that `Mentions` counts."""


@dataclass(frozen=True, slots=True)
class Mentions:
    """The lines with any of the `words` of a text, as those are written there, best first.

    A line scores by the share of the words' weight that it has. `count` is the number of lines with
    all words in any form; if there is none, `alone` has the number of lines with each word. No
    number is greater than `MAX_COUNTED`.
    """

    words: tuple[str, ...] = ()
    found: Passages = Passages()
    count: int = 0
    alone: tuple[int, ...] = ()


def find_passages(
    connection: Connection, question: str, within: Query, line_filter: LineFilter = PEOPLE
) -> Passages:
    """Return the lines that most likely answer `question`, at most `within.limit`.

    The result is empty if the question has stop words only.
    """
    search = PassageSearch.prepare(connection, question, within, line_filter)
    return Passages() if search is None else search.run(within.limit)


def find_mentions(
    connection: Connection, text: str, within: Query, line_filter: LineFilter = PEOPLE
) -> Mentions:
    """Return the lines with any word of `text`, be it a question or not, at most `within.limit`."""
    wanted = replace(line_filter, mentions=True)
    search = PassageSearch.prepare(connection, text, within, wanted)
    if search is None:
        return Mentions()
    found = search.run(within.limit)
    count = max(search.count(search.words), sum(each.has_all for each in found.items))
    alone = () if count else tuple(search.count([word]) for word in search.words)
    return Mentions(tuple(word.forms[0] for word in search.words), found, count, alone)


def training_samples(
    connection: Connection, question: str, within: Query
) -> list[tuple[Event, list[float]]]:
    """Return the lines that `find_passages` scores, with their features, to fit the weights."""
    search = PassageSearch.prepare(connection, question, within, PEOPLE)
    return [] if search is None else [(event, values) for event, values in search.lines()]


class PassageSearch:
    """A passage search on one connection."""

    def __init__(
        self,
        connection: Connection,
        conditions: LineConditions,
        asked: QuestionWords,
        line_filter: LineFilter,
    ) -> None:
        self._connection = connection
        self._conditions = conditions
        self._line_filter = line_filter
        self._index = PassageIndex(connection, conditions, oldest=line_filter.oldest)
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
        """Return the search for a question, None if it could find nothing: the question has stop
        words only, no channel is in scope, or the limit is 0."""
        asked = question_words(question)
        types = SPOKEN if within.types is None else SPOKEN & within.types
        conditions = LineConditions(
            connection,
            replace(within, own=None if line_filter.own else False, types=types),
            ParsedQuery(),
        )
        if not asked.words or not conditions.channels.rows or not within.limit:
            return None
        return cls(connection, conditions, asked, line_filter)

    @property
    def words(self) -> Sequence[QuestionWord]:
        """The words of the question."""
        return self._asking.question.words

    def count(self, words: Iterable[QuestionWord]) -> int:
        """Count the lines that have all these words in any form, up to `MAX_COUNTED`."""
        # Not by `index_terms`, whose prefixes match other words too.
        terms = tuple(tuple(map(Phrase, word.forms)) for word in words)
        rows = self._rows(self._index.newest(terms, MAX_COUNTED))
        return sum(not self._line_filter.leaves_out(self._event(row)) for row in rows)

    def passages(self, items: Iterable[Passage]) -> Passages:
        """Return the result with `items`, and how far the log was searched."""
        if self._reached is None:
            return Passages(tuple(items))
        reached = from_micros(self._reached * 1000)
        if self._line_filter.oldest:
            return Passages(tuple(items), searched_up_to=reached)
        return Passages(tuple(items), searched_back_to=reached)

    def run(self, limit: int) -> Passages:
        """Return the best `limit` passages, without repeated texts."""
        passages: list[Passage] = []
        asked: list[Passage] = []
        for event, values in self.lines():
            share = values[_COVERAGE_FEATURE]
            score = share if self._line_filter.mentions else chance(values)
            if event.text.rstrip().endswith("?") and not self._line_filter.mentions:
                score = min(score, MAX_QUESTION_SCORE)
            # A line that asks the same is no answer, but may have been given one.
            if share >= _SAME_QUESTION_COVERAGE and asks(event.text):
                asked.append(Passage(event, chance(as_statement(values)), share))
            has_all = values[_MISSING_FEATURE] == 0
            passages.append(Passage(event, score, share, has_all=has_all))
        if not self._line_filter.mentions:
            passages += self._replies(asked)
        # Rounded scores make lines equal that are about as good; then their age decides.
        sign = 1 if self._line_filter.oldest else -1
        best = distinct(
            sorted(passages, key=lambda each: (-rounded_log_odds(each.score), sign * each.event.id))
        )
        return self.passages(best[:limit])

    def events(self) -> Iterator[Event]:
        """Yield the newest lines whatever their words, then the candidates of the index."""
        for rows, _ in self._candidates():
            for row in rows:
                event = self._event(row)
                if not self._line_filter.leaves_out(event):
                    yield event

    def lines(self) -> Iterator[tuple[Event, list[float]]]:
        """Yield the lines that have a word of the question or a related one, with their features:
        of the newest lines, then of the candidates of the index."""
        for rows, recent in self._candidates():
            yield from self._fitting(rows, recent=recent)

    def _candidates(self) -> Iterator[tuple[Iterable[Row], bool]]:
        """Yield the newest rows with True, then the rows of the other candidates with False."""
        ids, self._reached = self._index.candidates(
            self._plans, self._further, _SUFFICIENT_SHARE * self._asking.whole
        )
        recent = self._recent()
        known = {row["id"] for row in recent}
        yield recent, True
        yield self._rows(set(ids) - known), False

    def _recent(self) -> Sequence[Row]:
        query = replace(self._conditions.query, limit=_RECENT_LINES)
        return query_rows(self._connection, query, self._conditions.channels, newest=True)

    def _rows(self, ids: Iterable[int]) -> Iterator[Row]:
        rows = self._connection.execute(_ROWS, [json.dumps(list(ids))])
        return (row for row in rows if self._conditions.fits(row))

    def _fitting(self, rows: Iterable[Row], *, recent: bool) -> Iterator[tuple[Event, list[float]]]:
        for row in rows:
            line = SpokenLine.from_text(row["text"], row["nick"])
            if self._asking.touches(line):
                event = self._event(row)
                if not self._line_filter.leaves_out(event):
                    yield event, features(self._asking, line, recent=recent)

    def _replies(self, asked: Sequence[Passage]) -> Iterator[Passage]:
        """Yield the lines that probably reply to people who have `asked` the same."""
        best = sorted(asked, key=lambda each: (-each.score, -each.event.id))
        expected = self._asking.question.expected
        for passage in best[:_MAX_FOLLOWED_QUESTIONS]:
            for reply in replies(passage.event, self._following(passage.event)):
                lacks = shows(expected, reply.event.text) is False
                score = passage.score * reply.chance * (_LACKING_FACTOR if lacks else 1)
                yield Passage(reply.event, score, passage.coverage, passage.event)

    def _following(self, asked: Event) -> list[Event]:
        """Return the lines just after a question on its channel."""
        query = replace(
            self._conditions.query,
            network=asked.network,
            channel=asked.channel,
            nick=None,
            after_id=asked.id,
            before_id=min(self._conditions.query.before_id or LAST_ID, asked.id + _REPLY_WINDOW_MS),
            limit=FOLLOWING_LINES,
        )
        events = find(self._connection, query, newest=False)
        return [event for event in events if not self._line_filter.leaves_out(event)]

    def _event(self, row: Row) -> Event:
        return event_of(row, self._conditions.channels.rows[row["channel_id"]])


def distinct(passages: Iterable[Passage]) -> list[Passage]:
    """Return the passages without those whose text repeats an earlier one's, ignoring case."""
    found: dict[str, Passage] = {}
    for passage in passages:
        found.setdefault(passage.event.text.strip().lower(), passage)
    return list(found.values())
