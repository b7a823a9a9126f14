"""Threads of one channel, tracked line by line from the log, and the people in them."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict, deque
from collections.abc import Callable
from itertools import islice
from typing import TypeVar

from llm.threads.model import (
    LINK_WINDOW,
    MAX_SHARED_WEIGHT,
    MAX_WORDS,
    MIN_RANKING_SCORE,
    InverseDocumentFrequency,
    ReplyFeatures,
    ThreadModel,
    Utterance,
    load_model,
    parents,
    rank,
    words,
)
from storage.chat_log.event import SPOKEN, Event, EventType, Place, Scope
from storage.chat_log.query import Query
from storage.protocols import LogReader

_NICK_SUFFIX = "`_|^-0123456789"  # characters that people append to a nick that is taken
_MIN_NICK_LENGTH = 3  # letters of a nick that is recognised in the middle of a line
_PUNCTUATION = ",:;!?()<>\"'."


TRACKED_LINES = 300
"""Number of latest lines in which conversations are tracked."""

MAX_PEOPLE = 4_000
"""Number of nicks that are known at most, those that were used last. Far more than speak in
`TRACKED_LINES` lines; it bounds what guests with generated nicks leave behind."""

Key = TypeVar("Key", str, int)


class People:
    """Register of the people seen on a channel, who keep their number when they change nick."""

    def __init__(self, is_common: Callable[[str], bool]) -> None:
        """Create an empty register; `is_common` recognises words that are rarely meant as nicks."""
        self._is_common = is_common
        # The dictionaries are in order of last use.
        self._by_nick: dict[str, int] = {}
        self._by_former_nick: dict[str, int] = {}
        self._by_stem: dict[str, int] = {}
        self._count = 0

    def person(self, nick: str) -> int:
        """Return the number of the person with `nick`, case-insensitively; a new nick gets a new
        one."""
        key = nick.lower()
        person = self._by_nick.get(key)
        if person is None:
            person = self._count
            self._count += 1
        self._know(key, person)
        return person

    def on_rename(self, old: str, new: str) -> None:
        """Record a nick change."""
        person, before, after = self.person(old), old.lower(), new.lower()
        # A variant such as "alice_afk" stays the same person's, who may come back with either.
        # Otherwise lines may still address them by the old nick until somebody else takes it.
        if not _are_variants(before, after):
            del self._by_nick[before]
            _keep_latest(self._by_former_nick, before, person)
        self._know(after, person)

    def find_addressee(self, speaker: int, text: str) -> tuple[int | None, frozenset[int]]:
        """Return the addressee of a line, None if unclear, and all people it names but the speaker.

        A leading `nick:` or `nick,` always counts as a name, elsewhere a nick of at least three
        letters that is not a common word. A person named alone counts as the addressee.
        """
        tokens = text.split()
        if tokens and tokens[0][-1] in ":,":
            leading, rest = self._leading(tokens[0]), tokens[1:]
        else:
            leading, rest = None, tokens
        found = {person for token in rest if (person := self._find_named(token)) is not None}
        if leading is not None:
            found.add(leading)
        found.discard(speaker)
        if leading not in (None, speaker):
            return leading, frozenset(found)
        return (next(iter(found)) if len(found) == 1 else None), frozenset(found)

    def _know(self, key: str, person: int) -> None:
        _keep_latest(self._by_nick, key, person)
        stem = key.rstrip(_NICK_SUFFIX)
        if len(stem) >= _MIN_NICK_LENGTH:
            _keep_latest(self._by_stem, stem, person)

    def _leading(self, token: str) -> int | None:
        person = self._find(token.strip(_PUNCTUATION).lower())
        return self._find(token[:-1].lower()) if person is None else person

    def _find_named(self, token: str) -> int | None:
        word = token.strip(_PUNCTUATION).lower()
        if len(word) < _MIN_NICK_LENGTH or self._is_common(word):
            return None
        return self._find(word)

    def _find(self, key: str) -> int | None:
        for nicks in (self._by_nick, self._by_former_nick):
            if key in nicks:
                return nicks[key]
        stem = key.rstrip(_NICK_SUFFIX)
        return self._by_stem.get(stem) if len(stem) >= _MIN_NICK_LENGTH else None


def _are_variants(one: str, other: str) -> bool:
    """Return whether one nick is the beginning of the other one, except for characters at its end
    that people append to a nick that is taken."""
    stem = min(one.rstrip(_NICK_SUFFIX), other.rstrip(_NICK_SUFFIX), key=len)
    return len(stem) >= _MIN_NICK_LENGTH and one.startswith(stem) and other.startswith(stem)


def _keep_latest(index: dict[Key, int], key: Key, value: int) -> None:
    """Set the value of a key as the last one used, and drop the first beyond MAX_PEOPLE."""
    index.pop(key, None)
    index[key] = value
    if len(index) > MAX_PEOPLE:
        del index[next(iter(index))]


_MIN_PROBABILITY = 0.004  # probabilities of one conversation below this are dropped
_MIN_SQUARED_WEIGHT = 4.0  # squared weight below which a word is too frequent to be evidence


class Threads:
    """Tracks the conversations of a channel, and finds the lines that belong to a question.

    Lines are numbered from 0 in chronological order. The probability that a line j and an earlier
    line i are in one conversation is the sum, over the candidate parents p of j, of the probability
    that p is the parent, times the probability that p and i are in one conversation.
    """

    def __init__(self, model: ThreadModel | None = None) -> None:
        self._model = model or load_model()
        self._idf = InverseDocumentFrequency(self._model.words, self._model.lines)
        self.people = People(self._idf.is_common)
        self._lines: deque[Utterance] = deque()  # newest first
        self.count = 0  # lines so far, which is also the number of the next one
        self._last: dict[int, int] = {}  # number of each person's latest line
        # P(same conversation) by line, for the last LINK_WINDOW lines, and by other line.
        self._chances: dict[int, dict[int, float]] = {}
        # Line numbers by word and partners by person, oldest first, over the last TRACKED_LINES
        # lines.
        self._postings: defaultdict[str, deque[int]] = defaultdict(deque)
        self._contacts: defaultdict[int, deque[int]] = defaultdict(deque)

    def on_join(self, nick: str) -> None:
        """Record a join, so that the nick is recognised in lines from now on."""
        self.people.person(nick)

    def on_rename(self, old: str, new: str) -> None:
        """Record a nick change."""
        self.people.on_rename(old, new)

    def on_message(self, nick: str, text: str, minute: int) -> int:
        """Record a line that `nick` said in the minute `minute` (of any epoch), and return its
        number."""
        line = self.utterance(nick, text, minute)
        chances = self.same_conversation_probabilities(self.reply(line))
        # Kept symmetric, so that a later line whose parent is `n` is related to this one too.
        for n, chance in chances.items():
            if n in self._chances:
                self._chances[n][line.n] = chance
        self._chances[line.n] = chances | {line.n: 1.0}
        self._chances.pop(line.n - LINK_WINDOW, None)
        self._remember(line)
        return line.n

    def find_related(
        self, nick: str, text: str, minute: int, most: int, least: float = -math.inf
    ) -> list[int]:
        """Return the numbers of at most `most` lines that belong to a question of `nick`, best
        first, and only those with a score of at least `least`. Changes nothing but `people`."""
        return self.related_to(self.utterance(nick, text, minute), most, least)

    def related_to(self, line: Utterance, most: int, least: float = -math.inf) -> list[int]:
        """Return what `find_related` does, for an utterance."""
        reply = self.reply(line)
        chances = self.same_conversation_probabilities(reply)
        chosen = rank(self._model.ranking, reply, self.ranking_candidates(), chances, most, least)
        return [line.n for line in chosen]

    def reply(self, line: Utterance) -> ReplyFeatures:
        """Return the features of a line as a reply to earlier ones."""
        circle = line.named.union(self._contacts.get(line.speaker, ()))
        return ReplyFeatures(line, circle, self._shared_words(line))

    def same_conversation_probabilities(self, reply: ReplyFeatures) -> dict[int, float]:
        """Return, by earlier line, the probability of being in one conversation with the reply."""
        # P(j, i) = sum over parents p of P(p is j's parent) * P(p, i). The P(p, i) of the last
        # LINK_WINDOW lines are stored, so a line costs (its few parents) * (the lines of their
        # threads).
        chances: dict[int, float] = {}
        for parent, chance in self.parents(reply):
            for n, same in self._chances[parent.n].items():
                chances[n] = chances.get(n, 0) + chance * same
        first = reply.line.n - TRACKED_LINES
        return {n: c for n, c in chances.items() if c >= _MIN_PROBABILITY and n >= first}

    def parents(self, reply: ReplyFeatures) -> list[tuple[Utterance, float]]:
        """Return the likeliest parents of a reply, each with its probability."""
        return parents(self._model.links, reply, self.link_candidates(), self.since(reply.line))

    def ranking_candidates(self) -> list[Utterance]:
        """Return the last TRACKED_LINES lines, the candidates of the ranking model, newest
        first."""
        return list(self._lines)

    def link_candidates(self) -> list[Utterance]:
        """Return the last LINK_WINDOW lines, the candidates of the link model, newest first."""
        return list(islice(self._lines, LINK_WINDOW))

    def since(self, line: Utterance) -> int | None:
        """Return how many lines ago the speaker of a line last spoke, None if never."""
        last = self._last.get(line.speaker)
        return None if last is None else line.n - last

    def utterance(self, nick: str, text: str, minute: int) -> Utterance:
        """Return a line as the next utterance, without recording it."""
        speaker = self.people.person(nick)
        addressee, named = self.people.find_addressee(speaker, text)
        length = min(len(text.split()), MAX_WORDS)
        return Utterance(
            self.count, minute, speaker, addressee, named, words(text), length, "?" in text
        )

    def _shared_words(self, line: Utterance) -> dict[int, int]:
        shared: defaultdict[int, float] = defaultdict(float)
        for word in line.words & self._postings.keys():
            squared = self._idf.squared_weight(word)
            if squared >= _MIN_SQUARED_WEIGHT:
                for n in self._postings[word]:
                    shared[n] += squared
        return {n: min(int(squared), MAX_SHARED_WEIGHT) for n, squared in shared.items()}

    def _remember(self, line: Utterance) -> None:
        self._lines.appendleft(line)
        self.count += 1
        _keep_latest(self._last, line.speaker, line.n)
        self._idf.learn(line.words)
        for word in line.words:
            self._postings[word].append(line.n)
        if line.addressee is not None:
            self._contacts[line.speaker].append(line.addressee)
            self._contacts[line.addressee].append(line.speaker)
        if len(self._lines) > TRACKED_LINES:
            self._forget(self._lines.pop())

    def _forget(self, line: Utterance) -> None:
        """Remove the oldest line from the indexes, where its entries are the first ones."""
        for word in line.words:
            _drop_first(self._postings, word)
        if line.addressee is not None:
            _drop_first(self._contacts, line.speaker)
            _drop_first(self._contacts, line.addressee)


def _drop_first(index: defaultdict[Key, deque[int]], key: Key) -> None:
    index[key].popleft()
    if not index[key]:
        del index[key]


_FOLLOWED_TYPES = SPOKEN | {EventType.JOIN, EventType.NICK}
_PAGE_SIZE = 2 * TRACKED_LINES  # events read at once; what came before them no longer matters
_MILLISECONDS_PER_MINUTE = 60_000  # of event ids, which are times in milliseconds
_YIELD_INTERVAL = 50  # events processed before the event loop is given control


class ChannelThreads:
    """The threads of a `place`, read incrementally from the log when a question comes.

    Continues after the last event read. If more than `_PAGE_SIZE` events have accumulated since,
    starts over with the newest ones.
    """

    def __init__(self, log: LogReader, place: Place) -> None:
        self._log = log
        self._place = place
        self._busy = asyncio.Lock()
        self._reset()

    async def follow(self) -> None:
        """Read the events since the last call, so that the next question need not wait for it."""
        async with self._busy:
            await self._catch_up(None)

    async def find_related(self, who: str, text: str, anchor: int, most: int) -> list[int]:
        """Return the ids of at most `most` lines that likely belong to the question that `who` asks
        with the event `anchor`.

        Callers filter the result: it may include lines after the anchor, if `follow` has read them,
        and lines that a model may no longer see.
        """
        async with self._busy:
            if self._seen < anchor - 1:  # otherwise no event lies between them
                await self._catch_up(anchor)
            minute = anchor // _MILLISECONDS_PER_MINUTE  # ids follow time
            numbers = self._threads.find_related(who, text, minute, most, MIN_RANKING_SCORE)
            oldest = self._threads.count - len(self._ids)  # number of the line of `_ids[0]`
            return [self._ids[number - oldest] for number in numbers]

    async def _catch_up(self, before: int | None) -> None:
        query = Query(
            scope=Scope.from_places(self._place),
            types=_FOLLOWED_TYPES,
            after_id=self._seen,
            before_id=before,
            limit=_PAGE_SIZE,
        )
        [events] = await self._log.for_model(query)
        # A full page has only the newest events: between it and those read before may be a gap.
        if len(events) == _PAGE_SIZE:
            self._reset()
        for number, event in enumerate(events, 1):
            self._follow(event)
            if number % _YIELD_INTERVAL == 0:
                await asyncio.sleep(0)

    def _reset(self) -> None:
        self._threads = Threads()
        self._ids: deque[int] = deque(maxlen=TRACKED_LINES)  # of the newest lines
        self._seen = 0

    def _follow(self, event: Event) -> None:
        self._seen = event.id
        match event.type:
            case EventType.JOIN:
                self._threads.on_join(event.nick)
            case EventType.NICK:
                self._threads.on_rename(event.nick, event.target)
            case _:
                minute = int(event.time.timestamp() // 60)
                self._threads.on_message(event.nick, event.text, minute)
                self._ids.append(event.id)
