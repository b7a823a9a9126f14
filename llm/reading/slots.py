"""Slots of a sentence whose kind is known: the person, the topic, the time, and the words without
the frame around them ("remind me to" in "remind me to check the oven")."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from functools import cache
from pathlib import Path

from llm.reading.spans import ALL_TIME, TimeSpan, time_span
from llm.reading.vocabulary import plain_word

_TOKEN = re.compile(r"[^\s,;!?.\"“”„()]+(?:\.[^\s,;!?.\"]+)*")
_NICK_END = re.compile(r"(?<=.)[\W\d_].*\Z")  # "keith_w", "phil77", "ada|away"
_MAX_LENGTH = 1_000  # characters that are looked through: the patterns of times block
_ENDS = " \t,.;:!?¿¡…()-–\"'"


@dataclass(frozen=True, slots=True)
class Slots:
    """The parts of a sentence that its kind asks for; "" and None for what is not there.

    `words` is the sentence without its frame, `topic` its content words without person, time and
    the words of talking. `names` are the words that may be the nick of somebody, known ones first;
    `person` is the nick of somebody present, or of the asker if they speak of themselves.
    `wants` is "last" or "first" if one of the lines is asked for by time.
    """

    words: str = ""
    topic: str = ""
    person: str = ""
    names: tuple[str, ...] = ()
    span: TimeSpan = ALL_TIME
    number: int | None = None
    wants: str = ""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The surroundings by which a sentence is read: the time and zone of the asker, their nick, and
    the nicks of those present."""

    now: datetime
    zone: tzinfo
    speaker: str = ""
    people: Collection[str] = ()


_OF_LOG = frozenset(
    ["counts", "links", "missed", "present", "search", "seen", "who_said", "said_by", "when_said"]
)
_SLOTS = {
    "words": frozenset({"remember", "remind", "schedule"}),
    "number": frozenset({"cancel_reminder"}),
    "person": _OF_LOG | {"remind"},
    "topic": _OF_LOG,
}
"""The kinds of sentences by the slots that are read for them; the topic with names and time."""


def read_slots(kind: str, text: str, around: Surroundings) -> Slots:
    """Return the slots that a sentence of this kind has; the others stay empty."""
    frames, text = _frames(), text[:_MAX_LENGTH]
    uses = {slot for slot, kinds in _SLOTS.items() if kind in kinds}
    if not uses:
        return Slots()
    span, rest = time_span(text, around.now, around.zone) if "topic" in uses else (ALL_TIME, text)
    words = [word.strip(_ENDS) for word in _TOKEN.findall(rest)]
    slots = Slots(words=strip_frame(text, kind) if "words" in uses else "", span=span)
    if "number" in uses:
        numbers = [int(word.lstrip("#")) for word in words if word.lstrip("#").isdecimal()]
        slots = replace(slots, number=numbers[0] if numbers and numbers[0] < 10**15 else None)
    known: list[str] = []
    if "person" in uses:
        nicks = _names_of(around.people)
        known = [nicks[bare] for word in words if (bare := _bare(word)) in nicks]
        told = map(plain_word, strip_frame(" ".join(words), kind).split())
        own = "" if frames.own.isdisjoint(told) else around.speaker
        slots = replace(slots, person=known[0] if known else own)
    if "topic" in uses:
        content = [word for word in words if word and _bare(word) not in frames.talk]
        asked = {plain_word(word) for word in words}
        topic = [word for word in content if _bare(word) != plain_word(slots.person)]
        slots = replace(
            slots,
            topic=" ".join(topic),
            names=tuple(dict.fromkeys([*known, *map(_without_possessive, content)])),
            wants="last" if asked & frames.last else "first" if asked & frames.first else "",
        )
    return slots


def strip_frame(text: str, kind: str) -> str:
    """Return a sentence without courtesies, the words by which a sentence of this kind begins, and
    the word that joins them to the rest."""
    frames = _frames()
    own = frames.beginnings.get(kind, frozenset())
    beginning = frames.courtesies | own
    rest = " ".join(text.split())
    while rest:
        word, _, after = rest.partition(" ")
        bare = plain_word(word.strip(_ENDS))
        # "an" joins in German, and is an article in "set an alarm".
        is_article = bare in own and plain_word(after.partition(" ")[0]) in own
        if (bare in frames.joins and not is_article) or (word.endswith(":") and bare in beginning):
            rest = after
            break
        if bare not in beginning:
            break
        rest = after
    first, _, after = rest.partition(" ")  # "about it: the rest"
    rest = after if first == ":" else rest
    rest = rest.strip(" ,:;").rstrip(" .!?")
    while plain_word(rest.rpartition(" ")[2].strip(_ENDS)) in frames.closings:
        rest = rest.rpartition(" ")[0].rstrip(_ENDS)
    return rest


def words_beside_frame(text: str, kind: str) -> str:
    """Return the words of a sentence that belong to no frame of this kind, wherever they stand."""
    frame, words = _frame_of(kind), (word.strip(_ENDS) for word in text.split())
    return " ".join(word for word in words if word and plain_word(word) not in frame)


@cache
def _frame_of(kind: str) -> frozenset[str]:
    frames = _frames()
    return frames.courtesies | frames.joins | frames.beginnings.get(kind, frozenset())


def speaks_of_all(text: str) -> bool:
    """Return whether a text speaks of all people here, without their names: "remind us"."""
    group = _frames().group
    return any(plain_word(word.strip(_ENDS)) in group for word in text.split())


def asks_for_everybody(text: str) -> bool:
    """Return whether a question is about all who are here: "who is here", "is anyone around"."""
    everybody = _frames().everybody
    return any(plain_word(word.strip(_ENDS)) in everybody for word in text.split())


def names_nothing(text: str) -> bool:
    """Return whether a text has no words of its own: "it", "my last one"."""
    frames = _frames()
    empty = frames.back | frames.talk | frames.joins | frames.me | frames.last | frames.first
    return all(plain_word(word.strip(_ENDS)) in {*empty, ""} for word in text.split())


def refers_back(text: str) -> bool:
    """Return whether a text names nothing, but stands for what was said before: "do it"."""
    words = [plain_word(word.strip(_ENDS)) for word in text.split()]
    return names_nothing(text) and not _frames().back.isdisjoint(words)


def _names_of(people: Collection[str]) -> dict[str, str]:
    """Return the nicks of people as people call them: "keith_w" also "keith", if that is clear."""
    called: dict[str, str] = {}
    for nick in people:
        short = plain_word(_NICK_END.sub("", nick))
        called[short] = "" if short in called else nick
    whole = {plain_word(nick): nick for nick in people}
    return {name: nick for name, nick in called.items() if nick and len(name) > 2} | whole


def _bare(word: str) -> str:
    """Return a word for comparison, without a possessive ending."""
    return plain_word(_without_possessive(word))


def _without_possessive(word: str) -> str:
    return re.sub(r"['’]s?$", "", word)


@dataclass(frozen=True, slots=True)
class _Frames:
    courtesies: frozenset[str]
    closings: frozenset[str]
    joins: frozenset[str]
    beginnings: dict[str, frozenset[str]]
    talk: frozenset[str]
    me: frozenset[str]
    back: frozenset[str]
    group: frozenset[str]
    own: frozenset[str]
    everybody: frozenset[str]
    last: frozenset[str]
    first: frozenset[str]


@cache
def _frames() -> _Frames:
    """Return the tables of `frames.toml`."""
    read = tomllib.loads(Path(__file__).with_name("frames.toml").read_text(encoding="utf-8"))
    words = {name: _words(each) for name, each in read.items() if isinstance(each, str)}
    beginnings = {kind: _words(each) for kind, each in read["frames"].items()}
    return _Frames(**words, beginnings=beginnings, talk=_words(read["talk"]["words"]))


def _words(listed: str) -> frozenset[str]:
    return frozenset(map(plain_word, listed.split()))
