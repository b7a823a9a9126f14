"""The index of words, asked for lines that have words of a question: bounded work in any log.

All lines with a rare word are read; of a common one only those that have another word of the
question as well. Both ends of the log are within reach: the partitions are read from the newest
backwards, or from the oldest on, until time is over.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest

from storage.chat_log.query import id_range
from storage.connection import Connection, Dialect
from storage.db.interrupting import Interrupted, interruptible
from storage.log_index import PARTITION_BITS, nick_tag, text_index
from storage.passages.question_words import QuestionWord, is_number
from storage.passages.score import WeighedQuestion
from storage.passages.word_forms import index_terms
from storage.search.planner import LineConditions
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
