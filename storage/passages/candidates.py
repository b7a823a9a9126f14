"""Candidates for the answer to a question, from the full-text index, with bounded work however
large the log is: all lines with a rare word of the question, and those that have a common word
together with another one. The partitions are read from the newest backwards, or from the oldest
forwards, until time is over."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from heapq import nlargest

from storage.chat_log.event_table import id_range
from storage.connection import GIVEN, Connection, Dialect
from storage.db.database import Interrupted, interruptible
from storage.log_index import PARTITION_BITS, nick_tag, text_index
from storage.passages.score import WeighedQuestion, names
from storage.passages.words import QuestionWord, index_terms, is_number, rarity
from storage.search.planner import LineConditions
from storage.search.scanner import LAST_ID
from storage.text_index.model import IdOrder, IdRange, IndexQuery, Phrase, WordMatch

_MAX_SCORED = 220  # candidates that are scored
_MIN_WEIGHT_SHARE = 0.5  # of the best candidate's weight, which another one needs to be scored
_SAMPLE_LINES = 40_000  # lines in which the frequencies of words are counted, about
_MAX_COUNTED_LINES = 3_000  # lines with a word that are counted in a partition, at most
_MAX_IDS_PER_WORD = 40_000  # ids that are read for a word from the whole index, about
_MIN_IDS_PER_PARTITION = 200  # and at least from a partition, if there are so many
# Seconds: the thread's CPU time with SQLite, so that a busy machine makes no answer partial, and
# wall-clock time with PostgreSQL.
_BUDGETS = {Dialect.SQLITE: 0.08, Dialect.POSTGRES: 0.24}
_MAX_WALL_TIME = 0.5  # seconds of wall-clock time in all
_MAX_WEIGHT = 7.0  # greatest weight of a word
_MAX_NUMBER_WEIGHT = 3.0  # greatest weight of a number, which may be about anything
_MAX_NICKS = 3  # people whom a word may name
_LAST_CHARACTER = chr(0x10FFFF)
_PRIOR_LINES = 3_000  # lines of ordinary English by which frequencies in the log are smoothed


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
        self.lines = self._indexed  # within the conditions, whatever their words
        self._channels = json.dumps(list(conditions.channels.rows))
        if conditions.channels.others:
            rows = connection.execute(
                f"SELECT sum(lines) FROM totals WHERE channel_id IN {GIVEN}",
                [self._channels],
            )
            self.lines = min(self.lines, int(rows.fetchone()[0] or 0))
        self._index = text_index(connection)
        # CPU time of this thread measures SQLite; PostgreSQL works while the thread waits.
        self._clock = time.thread_time if connection.dialect is Dialect.SQLITE else time.monotonic
        self._until = self._clock() + _BUDGETS[connection.dialect]
        self._patience = time.monotonic() + _MAX_WALL_TIME

    def speakers(self, words: Sequence[QuestionWord]) -> dict[str, dict[str, int]]:
        """Return how many lines the people whom a word names have said, by nick, by the word's
        root; without words that name nobody."""
        sql = (
            "SELECT nick, sum(lines) AS said FROM people_days"
            f" WHERE nick >= ? AND nick < ? AND own = 0 AND channel_id IN {GIVEN}"
            f" GROUP BY nick ORDER BY said DESC LIMIT {_MAX_NICKS}"
        )
        found = {}
        for word in words:
            begin = word.forms[0]
            rows = self._connection.execute(sql, [begin, begin + _LAST_CHARACTER, self._channels])
            said = {row["nick"]: int(row["said"]) for row in rows}
            if named := {nick: said[nick] for nick in said if word.root in names(nick)}:
                found[word.root] = named
        return found

    def frequencies(
        self, words: Sequence[QuestionWord], speakers: Mapping[str, Mapping[str, int]]
    ) -> tuple[dict[str, int], int]:
        """Return how many of the newest lines have each word or are by the people whom it names, by
        its root, and about how many lines were counted."""
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
        for root, said in speakers.items():
            counts[root] += sampled * min(sum(said.values()), self.lines) // self.lines
        return counts, sampled

    def with_all(self, terms: tuple[tuple[Phrase, ...], ...], most: int) -> list[int]:
        """Return the ids of at most `most` lines with a phrase of each group in `terms`."""
        match = WordMatch(terms, self._include, no_tags=self._exclude)
        found: list[int] = []
        for number, _ in self._partitions:
            found += self._matching(number, match, most - len(found))
            if len(found) == most:
                break
        return found

    def candidates(self, plans: Sequence[IndexPlan]) -> tuple[list[int], int | None]:
        """Return the ids of the lines whose words weigh most together, and the id down to which the
        log was searched, or with `oldest` up to which; None for the whole log."""
        sums: dict[int, float] = {}
        is_forward = self._sign > 0
        # Of the partition that is being read nothing is sure.
        reached: int | None = self._first
        if not is_forward:
            reached = min(self._last, time.time_ns() // 1_000_000)
        with suppress(Interrupted), interruptible(self._connection, self._late):
            for number, lines in self._partitions[:: -self._sign]:
                if is_forward:
                    reached = max(self._first, number << PARTITION_BITS)
                most = max(_MIN_IDS_PER_PARTITION, _MAX_IDS_PER_WORD * lines // self._indexed)
                for plan in plans:
                    # `interruptible` stops queries of SQLite only; hence this look at the clock.
                    if self._late():
                        raise Interrupted
                    nick = ((nick_tag(plan.nick),),) if plan.nick else ()
                    match = WordMatch(plan.terms, (*self._include, *nick), no_tags=self._exclude)
                    for event_id in self._matching(number, match, most):
                        sums[event_id] = sums.get(event_id, 0.0) + plan.weight
                if not is_forward:
                    reached = number << PARTITION_BITS
            reached = None
        least = _MIN_WEIGHT_SHARE * max(sums.values(), default=0)
        # A line that matches little of the question would only cost the time of scoring it.
        hopeful = [each for each, weight in sums.items() if weight >= least]
        best = nlargest(_MAX_SCORED, hopeful, key=lambda each: (sums[each], -self._sign * each))
        return best, reached

    def _matching(self, number: int, match: WordMatch, most: int) -> Sequence[int]:
        """Return the first `most` ids of a partition that match, in order."""
        first = max(self._first, number << PARTITION_BITS)
        ids = IdRange(number, first, min(self._last, ((number + 1) << PARTITION_BITS) - 1))
        order: IdOrder = "ASC" if self._sign > 0 else "DESC"
        wanted = IndexQuery(match, (), most, order)
        return self._index.ids(self._connection, [ids], wanted)

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
    asking: WeighedQuestion,
    counts: Mapping[str, int],
    counted: int,
    speakers: Mapping[str, Mapping[str, int]],
) -> Iterator[IndexPlan]:
    """Yield the lookups for a question, its rarest words first.

    A rare word is looked up alone, a common one together with any other word of the question. A
    word that names one of `speakers` also finds what this person said with any other word.
    """
    words = sorted(asking.question.words, key=lambda word: counts[word.root])
    # A word in a greater share of the lines is common: to read all of these would exceed
    # _MAX_IDS_PER_WORD.
    share = _MAX_IDS_PER_WORD / max(asking.lines, _MAX_IDS_PER_WORD)
    for word in words:
        own = index_terms(word.forms[0])
        others = tuple(
            term for each in words if each is not word for term in index_terms(each.forms[0])
        )
        terms: tuple[tuple[Phrase, ...], ...] = (own,)
        if others and counts[word.root] > share * max(counted, 1):
            terms = (own, others)
        yield IndexPlan(terms, asking.weights[word.root])
        if others:
            for nick in speakers.get(word.root, ()):
                yield IndexPlan((others,), asking.weights[word.root], nick)


def weight_of(word: QuestionWord, count: int, counted: int) -> float:
    """Return the inverse document frequency of a word in this log, smoothed by its frequency in
    English, and at most 7."""
    expected = _PRIOR_LINES * math.exp(-rarity(word.root))
    heaviest = _MAX_NUMBER_WEIGHT if is_number(word.root) else _MAX_WEIGHT
    return min(heaviest, math.log((counted + _PRIOR_LINES) / (count + expected)))
