"""The conversations of one channel, followed line by line."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from itertools import islice
from typing import TypeVar

from llm.threads import links, ranking
from llm.threads.model import ThreadModel, load_model
from llm.threads.people import People
from llm.threads.rarity import InverseDocumentFrequency, words
from llm.threads.reply import MOST_SHARED, ReplyFeatures
from llm.threads.utterance import MOST_WORDS, Utterance

BACK = 300
"""How many lines back a conversation is followed."""

Key = TypeVar("Key", str, int)

_LEAST_CHANCE = 0.004  # of one conversation; below, it is taken for none
_LEAST_SQUARED = 4.0  # words that are more frequent than that tell nothing


class Threads:
    """Takes in what happens in a channel, and finds the lines that belong to a question.

    Lines are numbered from 0 in the order in which they were said. The chance that a line j and
    an earlier line i are of one conversation is the sum, over the possible parents p of j, of
    the chance of p times the chance that p and i are of one conversation.
    """

    def __init__(self, model: ThreadModel | None = None) -> None:
        self._model = model or load_model()
        self._idf = InverseDocumentFrequency(self._model.words, self._model.lines)
        self.people = People(self._idf.is_common)
        self._lines: deque[Utterance] = deque()  # newest first
        self.count = 0  # lines that were said
        self._last: dict[int, int] = {}
        self._chances: dict[int, dict[int, float]] = {}
        self._postings: defaultdict[str, deque[int]] = defaultdict(deque)  # of each word
        self._contacts: defaultdict[int, deque[int]] = defaultdict(deque)  # of each person

    def on_join(self, nick: str) -> None:
        """Somebody came: their nick is known from now on."""
        self.people.person(nick)

    def on_rename(self, old: str, new: str) -> None:
        """Somebody took another nick."""
        self.people.on_rename(old, new)

    def on_message(self, nick: str, text: str, minute: int) -> int:
        """Take in a line that `nick` said in the minute `minute` (of any epoch); its number."""
        line = self.utterance(nick, text, minute)
        chances = self.chances(self.reply(line))
        for n, chance in chances.items():
            if n in self._chances:
                self._chances[n][line.n] = chance
        self._chances[line.n] = chances | {line.n: 1.0}
        self._chances.pop(line.n - links.NEAR, None)
        self._remember(line)
        return line.n

    def find_related(
        self, nick: str, text: str, minute: int, most: int, least: float = -math.inf
    ) -> list[int]:
        """The numbers of at most `most` lines that belong to what `nick` asks now, best first, and
        none with a score under `least`."""
        return self.related_to(self.utterance(nick, text, minute), most, least)

    def related_to(self, line: Utterance, most: int, least: float = -math.inf) -> list[int]:
        """The same, for a line that has been taken apart."""
        reply = self.reply(line)
        chances = self.chances(reply)
        chosen = ranking.best(self._model.ranking, reply, self.lines(), chances, most, least)
        return [line.n for line in chosen]

    def reply(self, line: Utterance) -> ReplyFeatures:
        """What a line is, seen as a reply."""
        circle = line.named.union(self._contacts.get(line.speaker, ()))
        return ReplyFeatures(line, circle, self._shared_words(line))

    def chances(self, reply: ReplyFeatures) -> dict[int, float]:
        """For each earlier line the chance that it is of one conversation with the reply."""
        chances: dict[int, float] = {}
        for parent, chance in self.parents(reply):
            for n, same in self._chances[parent.n].items():
                chances[n] = chances.get(n, 0) + chance * same
        first = reply.line.n - BACK
        return {n: c for n, c in chances.items() if c >= _LEAST_CHANCE and n >= first}

    def parents(self, reply: ReplyFeatures) -> list[tuple[Utterance, float]]:
        """The lines that the reply may answer, each with its chance."""
        return links.parents(self._model.links, reply, self.near(), self.since(reply.line))

    def lines(self) -> list[Utterance]:
        """The lines that may belong to a question, newest first."""
        return list(self._lines)

    def near(self) -> list[Utterance]:
        """The lines that may be answered, newest first."""
        return list(islice(self._lines, links.NEAR))

    def since(self, line: Utterance) -> int | None:
        """How many lines ago the speaker of a line spoke, if ever."""
        last = self._last.get(line.speaker)
        return None if last is None else line.n - last

    def utterance(self, nick: str, text: str, minute: int) -> Utterance:
        """What would be the next line."""
        speaker = self.people.person(nick)
        addressee, named = self.people.find_addressee(speaker, text)
        length = min(len(text.split()), MOST_WORDS)
        return Utterance(
            self.count, minute, speaker, addressee, named, words(text), length, "?" in text
        )

    def _shared_words(self, line: Utterance) -> dict[int, int]:
        shared: defaultdict[int, float] = defaultdict(float)
        for word in line.words & self._postings.keys():
            squared = self._idf.squared_weight(word)
            if squared >= _LEAST_SQUARED:
                for n in self._postings[word]:
                    shared[n] += squared
        return {n: min(int(squared), MOST_SHARED) for n, squared in shared.items()}

    def _remember(self, line: Utterance) -> None:
        self._lines.appendleft(line)
        self.count += 1
        self._last[line.speaker] = line.n
        self._idf.learn(line.words)
        for word in line.words:
            self._postings[word].append(line.n)
        if line.addressee is not None:
            self._contacts[line.speaker].append(line.addressee)
            self._contacts[line.addressee].append(line.speaker)
        if len(self._lines) > BACK:
            self._forget(self._lines.pop())

    def _forget(self, line: Utterance) -> None:
        """Undo `_remember` for the oldest line."""
        for word in line.words:
            _drop_first(self._postings, word)
        if line.addressee is not None:
            _drop_first(self._contacts, line.speaker)
            _drop_first(self._contacts, line.addressee)


def _drop_first(index: defaultdict[Key, deque[int]], key: Key) -> None:
    index[key].popleft()
    if not index[key]:
        del index[key]
