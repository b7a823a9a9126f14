"""The words that the answer to a plain question should have, and the kind of the question.

"When does the greenhouse pump start?" asks for a time, with "greenhouse", "pump" and "start".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from math import log

from storage.passages.related_words import related_words
from storage.passages.word_forms import forms, plain, stem, tokens

LONGEST_QUESTION = 1_000
"""Characters of a question that are read, and of a line in which an answer is looked for: patterns
take their time with a long text, and all others wait meanwhile."""

_MOST_WORDS = 12  # of a question; who asks with more has pasted something
_RARE = 7.0  # the most that a word weighs
_STOP_TEXT = """
a about after again all also am an and any anybody anyone anything are as at be because been
before being but by can come could currently did do does doing done each ever every everybody
everyone exactly few for from get gets getting give go going gone got had has have having he hello
her here hers hey hi him his how i if in into is it its just kind know known let like ll many may
me might mine more most much must my need no nobody nor not now of off on once one only onto or
our ours out over own please really recall remember say said same see shall she should since so
some somebody someone something sort still such sure tell than thank thanks that the their theirs
them then there these they thing things this those though through to too under until up upon us
use used uses using very want was we were what whats when where whether which while who whom whose
why will with within without would yes yet you your yours re ve happen happened happens supposed
called anymore currently again actually there's guys folks
"""
_STOP = frozenset(_STOP_TEXT.split())
_KEPT_WHEN_ALONE_TEXT = """
use used uses using called go going come get happened need
"""
_KEPT_WHEN_ALONE = frozenset(_KEPT_WHEN_ALONE_TEXT.split())


class Expected(Enum):
    """The kind of thing that a question asks for."""

    TIME = "time"
    NUMBER = "number"
    PLACE = "place"
    PERSON = "person"
    REASON = "reason"
    ANYTHING = "anything"


@dataclass(frozen=True, slots=True)
class QuestionWord:
    """A word that an answer should have. `forms` are all it may be written as, `rarity` says how
    much it tells by itself, from 0 to 7, `related` are stems that may stand for it with their
    weights under 1. A name has a capital inside the question."""

    root: str
    forms: tuple[str, ...]
    rarity: float
    related: Mapping[str, float]
    is_name: bool = False


@dataclass(frozen=True, slots=True)
class QuestionWords:
    """A question as it was understood; `is_state` for "what is the ...?", "where
    are ...?", but not for "what is a ...?", which nobody asks of a log."""

    words: tuple[QuestionWord, ...]
    expected: Expected
    is_state: bool = False


_KINDS = (
    (Expected.REASON, r"\bwhy\b|what(?:'s| is| was)? the reason|how come|for what reason|"
     r"what (?:caused|keeps|kept)"),
    (Expected.TIME, r"\bwhen\b|what (?:time|day|date|year|month)|"
     r"which (?:day|date|year|month|week)|"
     r"until what|since what|how (?:long|often|soon|late)|deadline|how many (?:hours|days|minutes|"
     r"weeks|months|years|seconds)|(?:after|at) what"),
    (Expected.NUMBER, r"how (?:many|much|old|far|tall|big|large|heavy|high|deep|wide|warm|hot|cold|"
     r"fast|bright|loud|strong|expensive)|"
     r"what (?:number|percentage|port|temperature|version|price)|"
     r"which (?:number|port|version)|"
     r"\b(?:price|cost|rent|phone number|port number|combination) of"),
    (Expected.PLACE, r"\bwhere\b|(?:what|which|whose) (?:\w+ )?"
     r"(?:place|room|address|street|city|town|country|floor|building|venue|office|drawer|shelf|house|location)|"
     r"\b(?:address|location) of"),
    (Expected.PERSON, r"\bwho(?:se|m)?\b|who's|which (?:person|colleague)|what person"),
)  # fmt: skip
_FRAME = re.compile(  # words of the question that no answer has
    r"\bhow (?:long|often|soon|far|late)\b|\b(?:what|which) (?:time|day|date|year|month)\b"
)
_STATES = re.compile(
    r"^\W*(?:what|where|who|when|which|how|why)\w*(?:'s| is| are| was| were) (?!an? )",
    re.IGNORECASE,
)
_EXPECTED = [(kind, re.compile(pattern)) for kind, pattern in _KINDS]

_NUMBER_WORD = (
    "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|"
    "sixteen|seventeen|eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|"
    "hundred|thousand|million|dozen|half|once|twice|none|zero"
)
_COUNTS = re.compile(_NUMBER_WORD)
_SHOWS = {
    Expected.TIME: re.compile(
        rf"\d|\b(?:{_NUMBER_WORD}|noon|midnight|morning|afternoon|evening|night|tonight|today|"
        r"tomorrow|yesterday|weekend|weekly|daily|monthly|yearly|hourly|always|never|"
        r"mon|tue|tues|wed|thu|thur|thurs|fri|sat|sun|(?:mon|tues|wednes|thurs|fri|satur|sun)days?|"
        r"january|february|march|april|may|june|july|august|september|october|november|december|"
        r"jan|feb|mar|apr|jun|jul|aug|sep|sept|oct|nov|dec|spring|summer|autumn|winter|easter|"
        r"christmas|week|month|year|hours?|minutes?|days?|weeks?|months?|years?|soon|later|until)\b"
    ),
    Expected.NUMBER: re.compile(rf"\d|\b(?:{_NUMBER_WORD}|free|nothing|no)\b"),
    Expected.PLACE: re.compile(
        r"\b(?:in|at|on|near|behind|under|inside|to|by|from|above|below|beside|next|upstairs|"
        r"downstairs|room|street|road|lane|with|over|between|opposite|into|here|there)\b"
    ),
    Expected.REASON: re.compile(
        r"\b(?:because|cause|cuz|since|due|so that|so it|reason|as|thanks to|otherwise|broken?|"
        r"failed|fault|in order|for|wants?|needs?)\b"
    ),
}
_ASKS = re.compile(
    r"^(?:[\w\[\]\\`^{}|-]+[,:] +)?(?:(?:and|so|but|ok|hi|hey|hello|well|also|um|hmm)[, ]+)*"
    r"(?:wh(?:at|en|ere|o|om|ose|y|ich)(?:'?s)?|how|does|do|did|is|are|was|were|can|could|should|would"
    r"|will|has|have|any(?:one|body)|someone knows?|i wonder|wondering)\b"
)


def question_words(text: str) -> QuestionWords:
    """Read a question, or the beginning of a long one."""
    text = text[:LONGEST_QUESTION]
    asked = plain(text)
    kinds = (kind for kind, pattern in _EXPECTED if pattern.search(asked))
    found = tokens(_FRAME.sub(" ", asked))[: 6 * _MOST_WORDS]
    kept = [word for word in found if word not in _STOP and (len(word) > 1 or word.isdigit())]
    if not kept:
        kept = [word for word in found if word in _KEPT_WHEN_ALONE]
    names = {plain(name) for name in re.findall(r"(?<=[\w,] )[A-Z][\w-]+", text)}
    words: dict[str, QuestionWord] = {}
    table = related_words()
    for word in kept:
        root = stem(word)
        if root not in words and len(words) < _MOST_WORDS:
            rarity = min(_RARE, max(1.0, log(20 + table.rank(root)) - 2.0))
            words[root] = QuestionWord(
                root, forms(word), rarity, table.related_to(root), word in names
            )
    is_state = _STATES.match(asked) is not None
    return QuestionWords(tuple(words.values()), next(kinds, Expected.ANYTHING), is_state)


def shows(expected: Expected, text: str) -> bool | None:
    """Return True if a text has what was asked for; None where that cannot be told."""
    pattern = _SHOWS.get(expected)
    return None if pattern is None else pattern.search(plain(text[:LONGEST_QUESTION])) is not None


def asks(text: str) -> bool:
    """Return True if a line is a question."""
    said = text.strip()
    if plain(said[-1:]) == "?":
        return True
    return _ASKS.match(plain(said[:LONGEST_QUESTION])) is not None


def is_content(word: str) -> bool:
    """Return True if a plain word says something by itself."""
    return word not in _STOP and len(word) > 1


def is_number(word: str) -> bool:
    """Return True if a plain word is a small number, in digits or letters."""
    return (word.isdigit() and len(word) < 3) or _COUNTS.fullmatch(word) is not None
