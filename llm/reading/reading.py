"""The reading of a question: made once, before it is decided who answers.

`llm/client/client.py` makes it. A question that could not be read has no kind: it is answered by
exact commands, skills and lines that surely answer it, and else by the model.

Kind, language and courtesy are found by multinomial logistic heads over the features of a sentence:
its embedding, which knows what it means, and the hashed words and pieces of words in it, which know
how it is said. `weights.json` is made by `make train` from the labelled sentences in
`benchmarks/questions/reading`, whose README describes the kinds. Adding a phrase is adding a line
of data, in any language.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
import tomllib
import zlib
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from functools import cache
from itertools import pairwise
from operator import mul
from pathlib import Path

from llm.reading.spans import ALL_TIME, TimeSpan, time_span
from llm.reading.vocabulary import plain_word

DIMENSIONS = 384
"""Those of the embeddings that the weights were fitted to."""

BUCKETS = 16_384
"""The number of buckets into which words and pieces of words are hashed."""

PIECES_LENGTH = 2.0
"""The length of the vector of all pieces, beside that of the embedding, which is 1."""

WEIGHTS = Path(__file__).with_name("weights.json")

_TOKEN = re.compile(r"\w+|[^\w\s]")
_PIECE = 4  # letters


@dataclass(frozen=True, slots=True)
class LabelWeights:
    """The weights of a label: those of the embedding and the bias, and those of the buckets, which
    are to be multiplied by `scale`."""

    embedding: Sequence[float]
    buckets: Sequence[int]
    scale: float


Rows = Mapping[str, LabelWeights]
"""The weights of one multinomial logistic regression by label."""


@dataclass(frozen=True, slots=True)
class Classifier:
    """The weights for kinds, languages and courtesies, and the mean embedding of the training
    data."""

    mean: Sequence[float]
    kinds: Rows
    languages: Rows
    courtesies: Rows

    def features(self, text: str, vector: Sequence[float]) -> Features:
        """Return the features of a sentence and its embedding as a query."""
        # The embeddings of all sentences point in nearly the same direction, so that what tells
        # them apart is the difference from the mean.
        centred = [value - mean for value, mean in zip(vector, self.mean, strict=True)]
        length = math.hypot(*centred) or 1.0
        return Features([*(value / length for value in centred), 1.0], buckets(text))


@dataclass(frozen=True, slots=True)
class Features:
    """The features of a sentence: its scaled embedding with a 1 for the bias, and the buckets of
    its pieces."""

    embedding: Sequence[float]
    buckets: Sequence[int]

    def probabilities(self, rows: Rows) -> dict[str, float]:
        """Return the probability of each label."""
        value = PIECES_LENGTH / math.sqrt(len(self.buckets) or 1)
        scores = {
            label: sum(map(mul, row.embedding, self.embedding))
            + value * row.scale * sum(row.buckets[each] for each in self.buckets)
            for label, row in rows.items()
        }
        highest = max(scores.values())
        shares = {label: math.exp(score - highest) for label, score in scores.items()}
        total = sum(shares.values())
        return {label: share / total for label, share in shares.items()}


def buckets(text: str) -> list[int]:
    """Return the buckets of the words of a text, of its pairs of words, and of the pieces of its
    words, each once."""
    return sorted({zlib.crc32(piece.encode(errors="replace")) % BUCKETS for piece in _pieces(text)})


def _pieces(text: str) -> Iterator[str]:
    words = ["<", *_TOKEN.findall(text.lower()), ">"]
    yield from words
    for one, other in pairwise(words):
        yield f"{one} {other}"
    for word in words:
        whole = f"_{word}_"
        for start in range(len(whole) - _PIECE + 1):
            yield f"#{whole[start : start + _PIECE]}"


@cache
def classifier() -> Classifier:
    """Return the shipped classifier."""
    stored = json.loads(WEIGHTS.read_text(encoding="utf-8"))
    kinds, languages, courtesies = (
        {label: _row(packed) for label, packed in stored[head].items()}
        for head in ("kinds", "languages", "courtesies")
    )
    return Classifier(stored["mean"], kinds, languages, courtesies)


def _row(packed: str) -> LabelWeights:
    """Unpack the weights of a label: those of the embedding and the bias as little-endian floats of
    half precision, the scale as a float, and those of the buckets, a signed byte each."""
    raw = base64.b64decode(packed)
    *embedding, scale = struct.unpack_from(f"<{DIMENSIONS + 1}ef", raw)
    return LabelWeights(embedding, array("b", raw[-BUCKETS:]), scale)


# Unlike a token of `vocabulary`, a word keeps a nick whole: "ada|away", "keith_w".
_WORD = re.compile(r"[^\s,;!?.\"“”„()]+(?:\.[^\s,;!?.\"]+)*")
_NICK_END = re.compile(r"(?<=.)[\W\d_].*\Z")  # "keith_w", "phil77", "ada|away"
_MAX_LENGTH = 1_000  # characters that are looked through, which blocks the event loop
_PUNCTUATION = " \t,.;:!?¿¡…()-–\"'"


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
    words = [word.strip(_PUNCTUATION) for word in _WORD.findall(rest)]
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
        bare = plain_word(word.strip(_PUNCTUATION))
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
    while plain_word(rest.rpartition(" ")[2].strip(_PUNCTUATION)) in frames.closings:
        rest = rest.rpartition(" ")[0].rstrip(_PUNCTUATION)
    return rest


def words_beside_frame(text: str, kind: str) -> str:
    """Return the words of a sentence that belong to no frame of this kind, wherever they stand."""
    frames, words = _frames(), (word.strip(_PUNCTUATION) for word in text.split())
    frame = frames.courtesies | frames.joins | frames.beginnings.get(kind, frozenset())
    return " ".join(word for word in words if word and plain_word(word) not in frame)


def _plain_words(text: str) -> list[str]:
    return [plain_word(word.strip(_PUNCTUATION)) for word in text.split()]


def speaks_of_all(text: str) -> bool:
    """Return whether a text speaks of all people here, without their names: "remind us"."""
    return not _frames().group.isdisjoint(_plain_words(text))


def asks_for_everybody(text: str) -> bool:
    """Return whether a question is about all who are here: "who is here", "is anyone around"."""
    return not _frames().everybody.isdisjoint(_plain_words(text))


def names_nothing(text: str) -> bool:
    """Return whether a text has no words of its own: "it", "my last one"."""
    frames = _frames()
    empty = frames.back | frames.talk | frames.joins | frames.me | frames.last | frames.first
    return empty.issuperset(filter(None, _plain_words(text)))


def refers_back(text: str) -> bool:
    """Return whether a text names nothing, but stands for what was said before: "do it"."""
    return names_nothing(text) and not _frames().back.isdisjoint(_plain_words(text))


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
    """The words of `frames.toml`, which says what they are for."""

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
    read = tomllib.loads(Path(__file__).with_name("frames.toml").read_text(encoding="utf-8"))
    words = {name: _words(each) for name, each in read.items() if isinstance(each, str)}
    beginnings = {kind: _words(each) for kind, each in read["frames"].items()}
    return _Frames(**words, beginnings=beginnings, talk=_words(read["talk"]["words"]))


def _words(listed: str) -> frozenset[str]:
    return frozenset(map(plain_word, listed.split()))


MOST_TOKENS = 40
"""Tokens of a question that are embedded, as the time to do so grows with them. Few sentences have
as many; strange scripts and symbols need up to one for each character."""

_BEGINNING, _END = 120, 40
"""Characters at the beginning and the end of a longer question that are classified: there people
say what they want."""
_REPEATED = re.compile(r"(.{1,2}?)\1{3,}", re.DOTALL)

ABOUT_TALK = frozenset({"missed", "talk"})
"""Kinds of questions about the talk on screen as a whole."""

OF_PLACE = frozenset({"local", "person"})
"""Kinds of questions that only the people here, or their log, can answer."""

ABOUT_LOG = frozenset({"who_said", "said_by", "when_said", "search"})
"""Kinds of questions that ask for lines of the log."""

FROM_HERE = (
    OF_PLACE
    | ABOUT_LOG
    | ABOUT_TALK
    | {"counts", "links", "operators", "present", "recall", "seen", "topic"}
)
"""Kinds of questions that nobody elsewhere can answer."""

OF_WORLD = frozenset({"follow_up", "general", "live", "time"})
"""Kinds to which a line that is only similar is no answer."""

NOT_ASKED = frozenset(
    {"about_bot", "calculation", "creative", "dice", "help", "more", "order", "remind", "schedule"}
    | {"small_talk", "statement", "stop", "tell", "text"}
)
"""Kinds to which no line of the log is an answer."""

CHAT = frozenset({"small_talk", "statement"})
"""Kinds of sentences that ask for nothing."""

_LONG = frozenset({"creative", "howto", "text", "page", "missed"})
GOING_ON = frozenset({"follow_up", "more"})
"""Kinds that make sense only after what was said before."""
_SURE = 0.5  # probability from which a question is rather of these kinds than of all others
_SURELY_FOREIGN = 0.9  # a wrong refusal is worse than a weak answer


@dataclass(frozen=True, slots=True)
class Reading:
    """The probabilities of a question's kinds, languages and courtesies, by name, and the slots of
    the likeliest kind; none if it could not be read. `vector` is its embedding as a query."""

    text: str
    kinds: Mapping[str, float] = field(default_factory=dict)
    languages: Mapping[str, float] = field(default_factory=dict)
    courtesies: Mapping[str, float] = field(default_factory=dict)
    slots: Slots = field(default_factory=Slots)
    vector: Sequence[float] = field(default=(), repr=False)

    @classmethod
    def from_vector(cls, text: str, vector: Sequence[float], around: Surroundings) -> Reading:
        """Return the reading of a question whose shortened text has this embedding as a query;
        without a kind for that of another model, from a server that is not ours."""
        if len(vector) != DIMENSIONS:
            return cls(text)
        weights = classifier()
        features = weights.features(shorten(text), vector)
        kinds = features.probabilities(weights.kinds)
        kind = _likeliest(kinds)
        return cls(
            text,
            kinds,
            features.probabilities(weights.languages),
            features.probabilities(weights.courtesies) if kind in CHAT else {},
            read_slots(kind, text, around),
            vector,
        )

    @property
    def kind(self) -> str:
        """The likeliest kind, "" if the question could not be read."""
        return _likeliest(self.kinds)

    @property
    def sure_kind(self) -> str:
        """The kind if it is likelier than all others together, else ""."""
        return self.kind if self.certainty >= _SURE else ""

    @property
    def certainty(self) -> float:
        """The probability of the kind, from 0 to 1."""
        return self.kinds.get(self.kind, 0.0)

    @property
    def language(self) -> str:
        """The likeliest language as an ISO 639-1 code, "" if it could not be read."""
        return _likeliest(self.languages)

    @property
    def courtesy(self) -> str:
        """The likeliest kind of small talk, "" if the sentence is neither that nor a statement."""
        return _likeliest(self.courtesies)

    @property
    def follows_up(self) -> bool:
        """True if the question makes sense only after what was said before it."""
        return self.is_one_of(GOING_ON)

    @property
    def wants_long(self) -> bool:
        """True if a long answer fits the question."""
        return self.is_one_of(_LONG)

    @property
    def is_foreign(self) -> bool:
        """True if the question is certainly not in English."""
        return sum(self.languages.values()) - self.languages.get("en", 0.0) >= _SURELY_FOREIGN

    def is_one_of(self, kinds: frozenset[str], at_least: float = _SURE) -> bool:
        """Return whether the question is of one of these kinds, with at least this probability."""
        return sum(self.kinds.get(kind, 0.0) for kind in kinds) >= at_least


def _likeliest(shares: Mapping[str, float]) -> str:
    return max(shares, key=shares.__getitem__, default="")


def shorten(text: str) -> str:
    """Return the parts of a text that are classified."""
    text = _REPEATED.sub(r"\1\1\1", text)
    is_short = len(text) <= _BEGINNING + _END
    return text if is_short else f"{text[:_BEGINNING]} {text[-_END:]}"
