"""The words of a question: their inflected forms, their rarity, and the expected kind of answer.

The index stores words as they were written. So it is searched for all forms of a word ("starts",
"started" and "starting" for "start"), while two texts are compared by the stems of their words.
"When does the greenhouse pump start?" has the words "greenhouse", "pump" and "start", and expects a
time. The tables beside this module are `irregular_forms.txt`, `stop_words.txt` and
`common_stems.txt`, the stems that are common in English, the most frequent first.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from importlib.resources import files
from math import log

from storage.text_index.model import Phrase

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_ACCENTS = dict.fromkeys(range(0x300, 0x370))  # the block Combining Diacritical Marks
_VOWELS = frozenset("aeiouy")
_DOUBLED = frozenset("bdfgklmnprtvz")
_MIN_STEM_LENGTH = 3  # letters of a stem
_MIN_PREFIX_LENGTH = 4  # letters of a prefix term: a shorter one matches too many other words


def _table(name: str) -> str:
    return (files("storage.passages") / f"{name}.txt").read_text(encoding="utf-8")


# Irregular verbs and nouns of everyday talk, a line with the forms of each, the stem first.
_FORMS = {line.split()[0]: tuple(line.split()) for line in _table("irregular_forms").splitlines()}
# Of a form that two words share, such as "leaves", the first one's.
_STEMS = {form: root for root, forms in reversed(_FORMS.items()) for form in forms}
_EXPANDED = {
    "won't": "will not",
    "can't": "can not",
    "what's": "what is",
    "who's": "who is",
    "where's": "where is",
    "when's": "when is",
    "how's": "how is",
    "it's": "it is",
    "that's": "that is",
    "there's": "there is",
    "i'm": "i am",
    "let's": "let us",
}
# Many people leave the apostrophe out. Not listed are those that are other words: "were", "ill".
_NEGATED = "dont doesnt didnt isnt arent wasnt werent hasnt havent hadnt couldnt wouldnt shouldnt"
_EXPANDED |= {word: f"{word[:-2]} not" for word in _NEGATED.split()}
_EXPANDED |= {word: f"{word[:-2]} are" for word in ("youre", "theyre")}
_EXPANDED |= {word: f"{word[:-2]} have" for word in ("ive", "youve", "weve", "theyve")}
_EXPANDED |= {
    word.replace("'", ""): whole
    for word, whole in _EXPANDED.items()
    if word not in ("it's", "let's")
}


def plain(text: str) -> str:
    """Return a text in lower case, without accents, and with straight apostrophes."""
    lower = text.lower().replace("’", "'")
    if lower.isascii():
        return lower
    # As FTS5's unicode61 folds: it keeps full-width letters and ligatures, which NFKD would
    # replace, Hangul syllables, and voiced kana, whose marks are not among the accents.
    decomposed = unicodedata.normalize("NFD", lower)
    return unicodedata.normalize("NFC", decomposed.translate(_ACCENTS))


def tokens(text: str) -> list[str]:
    """Return the plain words of a text in order, with contractions expanded and without possessive
    endings."""
    found: list[str] = []
    for word in _WORD.findall(plain(text)):
        if word in _EXPANDED:
            word = _EXPANDED[word]
        elif word.endswith("n't"):
            word = f"{word[:-3]} not"
        elif "'" in word:
            for ending in ("'re", "'ve", "'ll", "'d", "'m", "'s"):
                word = word.removesuffix(ending)
            word = word.replace("'", " ")
        found += word.split()
    return found


@lru_cache(50_000)
def stem(word: str) -> str:
    """Return the stem of a plain word, which all its forms share: mostly, but not always, a word
    itself."""
    if word in _STEMS:
        return _STEMS[word]
    if len(word) <= _MIN_STEM_LENGTH or not word.isalpha():
        return word
    if word.endswith(("ies", "ied")) and len(word) > 4:
        return f"{word[:-3]}y"
    if word.endswith("ie"):  # "brownie" and "brownies"
        return f"{word[:-2]}y"
    for ending in ("ing", "ed"):
        root = word.removesuffix(ending)
        # Without a vowel before it the ending is part of the word, as in "string" and "shed".
        if root != word and len(root) >= _MIN_STEM_LENGTH - 1 and _VOWELS & set(root):
            if len(root) < _MIN_STEM_LENGTH:
                return word
            is_doubled = root[-1] == root[-2] and root[-1] in _DOUBLED
            return _without_e(root[:-1] if is_doubled else root)
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return _without_e(word[:-2])
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return _without_e(word[:-1])
    return _without_e(word)


def _without_e(root: str) -> str:
    """Remove a final e, so that "bake" has the stem of "baking": "bak"."""
    is_final = len(root) > _MIN_STEM_LENGTH and root.endswith("e") and root[-2] != "e"
    return root[:-1] if is_final else root


@lru_cache(4_096)
def forms(word: str) -> tuple[str, ...]:
    """Return all possible spellings of the forms of a plain word, itself first."""
    # A stem does not tell whether an e or a doubled letter was removed, so some are no words.
    root = stem(word)
    if root in _FORMS:
        return tuple(dict.fromkeys([word, *_FORMS[root]]))
    if not root.isalpha() or len(root) < _MIN_STEM_LENGTH:
        return tuple(dict.fromkeys([word, root]))
    last = root[-1]
    made = [word, root, f"{root}s", f"{root}ed", f"{root}ing", f"{root}e", f"{root}es"]
    if last == "y":
        made += [f"{root[:-1]}ie", f"{root[:-1]}ies", f"{root[:-1]}ied"]
    if last in _DOUBLED and root[-2] in _VOWELS:
        made += [f"{root}{last}ed", f"{root}{last}ing", f"{root}{last}"]
    return tuple(dict.fromkeys(made))


@lru_cache(4_096)
def index_terms(word: str) -> tuple[Phrase, ...]:
    """Return the few index terms that match all forms of a plain word.

    A prefix matches slightly more than the forms, and costs less than searching each of them.
    """
    root = stem(word)
    if root in _FORMS or not root.isascii() or not root.isalpha() or len(root) < _MIN_PREFIX_LENGTH:
        return tuple(map(Phrase, forms(word)))
    terms = [Phrase(root, prefix=True)]
    if root.endswith("y"):
        terms += [Phrase(f"{root[:-1]}ies"), Phrase(f"{root[:-1]}ied")]
    return tuple(terms)


# The ranks of the stems that are common in English, the most frequent first.
_RANKS = {root: rank for rank, root in enumerate(_table("common_stems").split())}


def rarity(root: str) -> float:
    """Return how much a stem tells by its frequency in English, from 1 (frequent) to 7 (rare)."""
    return min(MAX_RARITY, max(1.0, log(20 + _RANKS.get(root, len(_RANKS))) - 2.0))


LONGEST_QUESTION = 1_000
"""Characters of a question, or of a line, to which patterns are applied: on a long text they are
slow, and everybody else waits meanwhile."""

_MAX_WORDS = 12  # of a question; further ones, as of a pasted text, are ignored
MAX_RARITY = 7.0
"""The `rarity` of a word that English hardly has."""

_STOP = frozenset(_table("stop_words").split())
_KEPT_WHEN_ALONE = frozenset(
    ("use", "used", "uses", "using", "called", "go", "going", "come", "get", "happened", "need")
)


class Expected(Enum):
    """The kind of answer that a question expects."""

    TIME = "time"
    NUMBER = "number"
    PLACE = "place"
    PERSON = "person"
    REASON = "reason"
    ANYTHING = "anything"


@dataclass(frozen=True, slots=True)
class QuestionWord:
    """A content word of a question.

    `root` is its stem, `forms` are its possible spellings, as written first. `is_name` marks a word
    capitalised within the question.
    """

    root: str
    forms: tuple[str, ...]
    is_name: bool = False


@dataclass(frozen=True, slots=True)
class QuestionWords:
    """A parsed question. `is_state` is True for "what is the ...?" and "where are ...?", but not
    for "what is a ...?", which asks for a definition."""

    words: tuple[QuestionWord, ...]
    expected: Expected
    is_state: bool = False


_KINDS = (
    (Expected.REASON, r"\bwhy\b|what(?:'s| is| was)? the reason|how come|for what reason|"
     r"what (?:caused|keeps|kept)"),
    # "how do I get online when ..." does not ask for a time.
    (Expected.TIME, r"^(?!\W*(?:how|what|where|which|who)\b).*\bwhen\b|"
     r"what (?:time|day|date|year|month)|which (?:day|date|year|month|week)|"
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
_FRAME = re.compile(  # phrases of a question that its answer does not repeat
    r"\bhow (?:long|often|soon|far|late)\b|\b(?:what|which) (?:time|day|date|year|month)\b"
)
_STATES = re.compile(
    r"^\W*(?:what|where|who|when|which|how|why)\w*(?:'s| is| are| was| were) (?!an? )",
    re.IGNORECASE,
)
_MISSING_APOSTROPHE = re.compile(r"\b(what|who|where|when|how)s\b")
_EXPECTED = [(kind, re.compile(pattern)) for kind, pattern in _KINDS]

_NUMBER_WORD = (
    "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen|"
    "sixteen|seventeen|eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety|"
    "hundred|thousand|million|dozen|half|once|twice|none|zero"
)
_COUNTS = frozenset(_NUMBER_WORD.split("|"))
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
_SHOWS_PERSON = re.compile(  # a name, or the speaker
    r"\b[A-Z][a-z]+|\b(?i:i|i['’]?(?:m|ll|ve|d)|me|my|mine|we|us|our|he|she|they|who)\b"
)
_ASKS = re.compile(
    r"^(?:[\w\[\]\\`^{}|-]+[,:] +)?(?:(?:and|so|but|ok|hi|hey|hello|well|also|um|hmm)[, ]+)*"
    r"(?:wh(?:at|en|ere|o|om|ose|y|ich)(?:'?s)?|how|does|do|did|is|are|was|were|can|could|should|would"
    r"|will|has|have|any(?:one|body)|someone knows?|i wonder|wondering)\b"
)


def question_words(text: str) -> QuestionWords:
    """Parse a question, or the beginning of a long one."""
    text = text[:LONGEST_QUESTION]
    asked = _MISSING_APOSTROPHE.sub(r"\1's", plain(text))
    kinds = (kind for kind, pattern in _EXPECTED if pattern.search(asked))
    found = tokens(_FRAME.sub(" ", asked))[: 6 * _MAX_WORDS]
    kept = [word for word in found if word not in _STOP and (len(word) > 1 or word.isdigit())]
    if not kept:  # "what is it used for?"
        kept = [word for word in found if word in _KEPT_WHEN_ALONE]
    names = {plain(name) for name in re.findall(r"(?<=[\w,] )[A-Z][\w-]+", text)}
    words: dict[str, QuestionWord] = {}
    for word in kept:
        root = stem(word)
        if root not in words and len(words) < _MAX_WORDS:
            words[root] = QuestionWord(root, forms(word), word in names)
    is_state = _STATES.match(asked) is not None
    return QuestionWords(tuple(words.values()), next(kinds, Expected.ANYTHING), is_state)


def shows(expected: Expected, text: str) -> bool | None:
    """Return True if a text has the expected kind of answer, None if that cannot be told."""
    if expected is Expected.PERSON:
        return _SHOWS_PERSON.search(text[:LONGEST_QUESTION]) is not None
    pattern = _SHOWS.get(expected)
    return None if pattern is None else pattern.search(plain(text[:LONGEST_QUESTION])) is not None


def asks(text: str) -> bool:
    """Return True if a line is a question."""
    said = text.strip()
    if plain(said[-1:]) == "?":
        return True
    return _ASKS.match(plain(said[:LONGEST_QUESTION])) is not None


def is_content(word: str) -> bool:
    """Return True if a plain word has a meaning of its own: it is no stop word."""
    return word not in _STOP and len(word) > 1


@lru_cache(1_000)
def content_stems(text: str) -> frozenset[str]:
    """Return the stems of the content words of a text."""
    return frozenset(stem(word) for word in tokens(text) if is_content(word))


def is_number(word: str) -> bool:
    """Return True if a plain word is a small number, in digits or letters."""
    return (word.isdigit() and len(word) < 3) or word in _COUNTS
