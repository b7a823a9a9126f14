"""Passage retrieval: lines that answer a plain question, best first, each with a probability.

The best few hundred candidates by their words (storage/passages/candidates.py), the newest lines of
the log whatever their words, and those near in meaning are scored one by one
(storage/passages/score.py).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from heapq import nlargest
from operator import itemgetter

from storage.chat_log.event import SPOKEN, Event
from storage.chat_log.event_table import Query, event_of, find, query_rows, rows_of
from storage.chat_log.opt_outs import rules
from storage.connection import Connection, Row
from storage.db.database import from_micros
from storage.passages.candidates import PassageIndex, plans, weight_of
from storage.passages.replies import FOLLOWING_LINES, replies
from storage.passages.score import (
    FEATURES,
    MOST_BEFORE,
    LineBefore,
    SpokenLine,
    WeighedQuestion,
    chances,
    correction,
    log_odds,
    with_context,
    with_meaning,
)
from storage.passages.words import QuestionWord, QuestionWords, plain, question_words
from storage.search.planner import LineConditions
from storage.search.query_parser import ParsedQuery
from storage.search.scanner import LAST_ID
from storage.search.vectors import Likeness, LineVectors
from storage.text_index.model import Phrase

_RECENT_LINES = 300  # newest lines that are scored whatever their words
_NEAR_LINES = 40  # lines near in meaning that are scored
_SAME_QUESTION = 0.75  # likeness or coverage from which on a question asks the same
_MAX_FOLLOWED_QUESTIONS = 5  # questions whose replies are scored
_REPLY_WINDOW_MS = 3_600_000  # ids, which are milliseconds, within which a reply follows
_TALK_MS = 3 * _REPLY_WINDOW_MS  # within which a line belongs to the talk before it
_NOTABLE = 0.1  # score of the line before another, from which on it is shown with that
MOST_RANKED = 30
"""Lines that are ranked for a question."""
LINES_AFTER = 2
"""Lines after another that are shown with it if it is not surely the answer."""
_MAX_AROUND = 8  # older lines around which others are scored
_ASKS = FEATURES.index("asks")
_COVERAGE, _MISSING = FEATURES.index("coverage"), FEATURES.index("heaviest missing")
_REPLY = FEATURES.index("reply")
_RELATIONS = (_COVERAGE, _REPLY, FEATURES.index("coverage before"))


@dataclass(frozen=True, slots=True)
class Passage:
    """A line and its score, the probability that it answers the question.

    `values` are its features of words, `likeness` is that of its meaning to the question's, None if
    one of them is unknown. `alone` is the probability that the line is the answer, `around` that it
    or one of the lines shown with it is; the score is that of the best passage, else `alone`.
    `needs_before` tells whether the line before it may well be the answer.
    """

    event: Event
    values: Sequence[float]
    likeness: Likeness | None = None
    score: float = 0.0
    alone: float = 0.0
    around: float = 0.0
    needs_before: bool = False

    @property
    def coverage(self) -> float:
        """The share of the weight of the question's words that the line has."""
        return self.values[_COVERAGE]

    @property
    def nearness(self) -> float:
        """The likeness of the line alone, 0 if that is unknown."""
        return self.likeness.alone if self.likeness else 0.0

    @property
    def is_related(self) -> bool:
        """True if more than its form speaks for the line: words, its meaning, or its place."""
        return any(self.values[each] for each in _RELATIONS) or self.likeness is not None

    @property
    def has_all(self) -> bool:
        """True if the line has all words of the question."""
        return self.values[_MISSING] == 0


@dataclass(frozen=True, slots=True)
class Passages:
    """The lines that may answer a question, best first.

    When time was over before all of the log was searched, `searched_back_to` is the time down to
    which it was, or `searched_up_to` the time up to which it was, if the oldest lines came first.
    """

    items: tuple[Passage, ...] = ()
    searched_back_to: datetime | None = None
    searched_up_to: datetime | None = None

    def with_likeness(self, likeness: Mapping[int, Likeness]) -> Passages:
        """Return the passages ranked anew with the likeness of some lines, by event id."""
        items = self.items
        known = [replace(e, likeness=likeness.get(e.event.id, e.likeness)) for e in items]
        return replace(self, items=tuple(rank(known)))


def rank(passages: Iterable[Passage], *, oldest: bool = False) -> list[Passage]:
    """Return the best `MOST_RANKED` passages with their scores, best first, without those whose
    text repeats an earlier one's, ignoring case.

    The score of the first is the probability that it or one of the lines that are shown with it has
    the answer, that of another that this one is it.
    """
    found = sorted(passages, key=lambda each: each.event.id)
    rough = (
        (log_odds(values), values, each) for each, values in zip(found, compare(found), strict=True)
    )
    hopeful = nlargest(MOST_RANKED, rough, key=itemgetter(0))
    by_meaning = any(each.likeness is not None for each in found)
    odds = [linear + by_meaning * correction(values) for linear, values, _ in hopeful]
    scores: defaultdict[int, float] = defaultdict(float)
    for (*_, each), chance in zip(hopeful, chances(odds), strict=True):
        scores[each.event.id] = chance
    # Log-odds in steps of 0.5, which is about their precision, make lines equal that are about as
    # good; then their age decides.
    sign = 1 if oldest else -1
    best = sorted(
        zip((each for *_, each in hopeful), odds, strict=True),
        key=lambda each: (-round(2 * each[1]), sign * each[0].event.id),
    )
    channels: defaultdict[tuple[str, str | None], list[int]] = defaultdict(list)
    for each in found:
        channels[each.event.network, each.event.channel].append(each.event.id)
    ranked: list[Passage] = []
    for each in _distinct(each for each, _ in best):
        event = each.event
        channel, alone = channels[event.network, event.channel], scores[event.id]
        place = channel.index(event.id)
        before, after = channel[max(0, place - 1) : place], channel[place : place + 1 + LINES_AFTER]
        around = sum(scores[id] for id in (*before, *after))
        needs_before = any(scores[id] >= _NOTABLE for id in before)
        score = alone if ranked else around
        ranked.append(
            replace(each, score=score, alone=alone, around=around, needs_before=needs_before)
        )
    return ranked


def _with_contexts(passages: Sequence[Passage]) -> Iterator[Passage]:
    """Yield passages with the features of those just before them in their channel."""
    talks: dict[tuple[str, str | None], list[Passage]] = {}
    for passage in sorted(passages, key=lambda each: each.event.id):
        talk = talks.setdefault((passage.event.network, passage.event.channel), [])
        since = passage.event.id - _TALK_MS
        before = [
            LineBefore(each.event.nick, each.values, each.nearness)
            for each in talk[-MOST_BEFORE:]
            if each.event.id >= since
        ]
        talk.append(passage)
        yield replace(passage, values=with_context(passage.values, passage.event.nick, before))


def compare(passages: Sequence[Passage]) -> Iterator[Sequence[float]]:
    """Yield the features of each passage, including those that compare its likeness with the best
    one of the others."""
    known = [each.likeness for each in passages if each.likeness]
    alone = nlargest(2, (each.alone for each in known))
    in_talk = nlargest(2, (each.in_talk for each in known))
    for each in passages:
        like = each.likeness
        if like is None or len(known) == 1:
            yield each.values
        else:
            others = Likeness(alone[like.alone == alone[0]], in_talk[like.in_talk == in_talk[0]])
            yield with_meaning(each.values, like, others)


def _distinct(passages: Iterable[Passage]) -> list[Passage]:
    """Return passages without those whose text repeats an earlier one's."""
    found: dict[str, Passage] = {}
    for passage in passages:
        found.setdefault(passage.event.text.strip().lower(), passage)
    return list(found.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFilter:
    """The rule for the lines that a passage search may return.

    Excluded are commands (they begin with `prefix`), lines addressed to one of the bot's `nicks`,
    the bot's own lines, and empty ones; with `own` only the last. With `mentions` lines score by
    the words of the question that they have, be they an answer or not. With `oldest` the oldest of
    equal lines comes first, else the newest.
    """

    prefix: str = "."
    nicks: Collection[str] = ()
    own: bool = False
    mentions: bool = False
    oldest: bool = False

    def leaves_out(self, event: Event) -> bool:
        """Return True if an event must not be returned."""
        text = event.text.lstrip()
        return not text or (not self.own and (event.own or self.is_for_bot(event)))

    def is_for_bot(self, event: Event) -> bool:
        """Return True if an event is a command, or addressed to the bot."""
        text = event.text.lstrip()
        command = text.removeprefix(self.prefix)
        if self.prefix and command != text and command[:1].isascii() and command[:1].isalpha():
            return True
        said = text.removeprefix("@")
        return any(
            said[: len(nick)].lower() == nick.lower()
            and said[len(nick) :].lstrip().startswith((":", ","))
            for nick in self.nicks
        )


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
    connection: Connection,
    question: str,
    within: Query,
    line_filter: LineFilter = PEOPLE,
    vector: Sequence[float] | None = None,
) -> Passages:
    """Return the lines that most likely answer `question`, best first, at most `within.limit`,
    without those of people who have opted out. `vector` is its embedding as a query, None if it has
    none.

    The result is empty if the question has stop words only, and no vector.
    """
    search = PassageSearch.prepare(connection, question, within, line_filter, vector)
    return search.run(within.limit) if search else Passages()


def find_mentions(
    connection: Connection, text: str, within: Query, line_filter: LineFilter = PEOPLE
) -> Mentions:
    """Return and count the lines with any word of `text`, be it a question or not, at most
    `within.limit`, without those of people who have opted out."""
    wanted = replace(line_filter, mentions=True)
    search = PassageSearch.prepare(connection, text, within, wanted, None)
    if search is None:
        return Mentions()
    words, found = search.asked.words, search.run(within.limit)
    count = max(search.count(words), sum(each.has_all for each in found.items))
    alone = () if count else tuple(search.count([word]) for word in words)
    typed = {plain(word): word for word in re.findall(r"[\w'’-]+", text)}
    shown = tuple(typed.get(word.forms[0], word.forms[0]) for word in words)
    return Mentions(shown, found, count, alone)


class PassageSearch:
    """The search for lines that answer a question, `asked`, on one connection."""

    def __init__(
        self,
        connection: Connection,
        conditions: LineConditions,
        asked: QuestionWords,
        line_filter: LineFilter,
        vector: Sequence[float] | None,
    ) -> None:
        self.asked = asked
        self._connection = connection
        self._conditions = conditions
        self._line_filter = line_filter
        self._opt_out_rules = rules(connection)
        self._index = PassageIndex(connection, conditions, oldest=line_filter.oldest)
        speakers = self._index.speakers(asked.words)
        counts, counted = self._index.frequencies(asked.words, speakers)
        weights = {word.root: weight_of(word, counts[word.root], counted) for word in asked.words}
        self._asking = WeighedQuestion(asked, weights, self._index.lines)
        self._plans = list(plans(self._asking, counts, counted, speakers))
        self._vectors = LineVectors(connection, vector) if vector else None
        self._reached: int | None = None

    @classmethod
    def prepare(
        cls,
        connection: Connection,
        question: str,
        within: Query,
        line_filter: LineFilter,
        vector: Sequence[float] | None,
    ) -> PassageSearch | None:
        """Return the search for a question, None if it could find nothing: the question has neither
        words nor a vector, no channel is in scope, or the limit is 0."""
        asked = question_words(question)
        types = SPOKEN if within.types is None else SPOKEN & within.types
        query = replace(within, own=None if line_filter.own else False, types=types)
        conditions = LineConditions(connection, query, ParsedQuery())
        if not (asked.words or vector) or not conditions.channels.rows or not within.limit:
            return None
        return cls(connection, conditions, asked, line_filter, vector)

    def count(self, words: Iterable[QuestionWord]) -> int:
        """Count the lines that have all these words in any form, up to `MAX_COUNTED`."""
        # Not by `index_terms`, whose prefixes match other words too.
        terms = tuple(tuple(map(Phrase, word.forms)) for word in words)
        rows = self._rows(self._index.with_all(terms, MAX_COUNTED))
        return sum(not self._leaves_out(self._event(row)) for row in rows)

    def run(self, limit: int) -> Passages:
        """Return the best `limit` passages, without repeated texts."""
        oldest = self._line_filter.oldest
        if self._line_filter.mentions:
            sign = 1 if oldest else -1
            found = [replace(each, score=each.coverage) for each in self.candidates()]
            found.sort(key=lambda each: (-round(20 * each.score), sign * each.event.id))
            items = tuple(_distinct(each for each in found if each.score)[:limit])
        else:
            items = tuple(rank(self.candidates(), oldest=oldest)[:limit])
        reached = None if self._reached is None else from_micros(self._reached * 1000)
        return Passages(items, None if oldest else reached, reached if oldest else None)

    def candidates(self) -> list[Passage]:
        """Return the newest lines whatever their words, those that the index has for the words,
        and those near in meaning; then replies to people who asked the same. Questions are left
        out, unless all mentions are wanted."""
        ids, self._reached = self._index.candidates(self._plans)
        query = replace(self._conditions.query, limit=_RECENT_LINES)
        channels = self._conditions.channels
        recent = query_rows(self._connection, query, channels, newest=True)
        known = {row["id"] for row in recent}
        others = set(ids) - known
        if self._vectors and not self._line_filter.mentions:
            others |= set(self._vectors.nearest(self._conditions, _NEAR_LINES)) - known
        heard = self._heard(map(self._event, [*recent, *self._rows(others)]))
        if self._line_filter.mentions:
            return heard
        found, asked = [], []
        for passage in _with_contexts([*heard, *self._around(heard, known)]):
            event = passage.event
            same = max(passage.coverage, passage.nearness)
            # A line that asks the same is no answer, but may have been given one.
            only_asks = bool(passage.values[_ASKS])
            if same >= _SAME_QUESTION and only_asks:
                asked.append((same, event))
            if not (only_asks and event.text.rstrip().endswith("?")):
                found.append(passage)
        return self._with_replies(found, asked)

    def _heard(self, events: Iterable[Event]) -> list[Passage]:
        """Return what people have said among events."""
        said = [event for event in events if not self._leaves_out(event)]
        likeness = self._vectors.likeness([each.id for each in said]) if self._vectors else {}
        return [Passage(each, self._values(each), likeness.get(each.id)) for each in said]

    def _around(self, heard: Sequence[Passage], recent: Collection[int]) -> list[Passage]:
        """Return the lines before and after the best of those that are older than the `recent` ids,
        as the answer may stand there without a word of the question."""
        query, known = self._conditions.query, {each.event.id for each in heard}
        older = [each for each in heard if each.event.id not in recent]
        if query.nick:
            return []  # they are somebody else's
        around: dict[int, Event] = {}
        for each in nlargest(_MAX_AROUND, older, key=lambda e: max(e.coverage, e.nearness)):
            event = each.event
            here = replace(query, network=event.network, channel=event.channel, limit=MOST_BEFORE)
            last = min(query.before_id or LAST_ID, event.id + _TALK_MS)
            parts = (
                (replace(here, after_id=event.id, before_id=last), False),
                (replace(here, before_id=event.id), True),
            )
            for part, newest in parts:
                found = find(self._connection, part, newest=newest)
                around.update((near.id, near) for near in found if near.id not in known)
        return self._heard(around.values())

    def _with_replies(
        self, found: Sequence[Passage], asked: Sequence[tuple[float, Event]]
    ) -> list[Passage]:
        """Return passages, with the lines that probably reply to people who `asked` the same."""
        passages, query = {each.event.id: each for each in found}, self._conditions.query
        for same, question in nlargest(_MAX_FOLLOWED_QUESTIONS, asked, key=lambda each: each[0]):
            last = min(query.before_id or LAST_ID, question.id + _REPLY_WINDOW_MS)
            after = replace(
                query,
                network=question.network,
                channel=question.channel,
                nick=None,
                after_id=question.id,
                before_id=last,
                limit=FOLLOWING_LINES,
            )
            events = find(self._connection, after, newest=False)
            following = [each for each in events if not self._leaves_out(each)]
            for event, chance_of_reply in replies(question, following):
                known = passages.get(event.id)
                known = known or Passage(event, self._values(event))
                values = list(known.values)
                if same * chance_of_reply > values[_REPLY]:
                    values[_REPLY] = same * chance_of_reply
                    passages[event.id] = replace(known, values=values)
        return list(passages.values())

    def _leaves_out(self, event: Event) -> bool:
        return self._line_filter.leaves_out(event) or self._opt_out_rules.hides(event)

    def _values(self, event: Event) -> list[float]:
        return self._asking.features(SpokenLine.from_text(event.text, event.nick))

    def _rows(self, ids: Collection[int]) -> Iterator[Row]:
        rows = rows_of(self._connection, ids)
        return (row for row in rows if self._conditions.fits(row))

    def _event(self, row: Row) -> Event:
        return event_of(row, self._conditions.channels.rows[row["channel_id"]])
