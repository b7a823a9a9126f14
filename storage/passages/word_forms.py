"""English words in their forms: "start" for "starts", "started" and "starting".

The index keeps words as they were written. So a question asks it for all forms that a word can
have, and whoever compares two texts compares the stems of their words.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

from storage.text_index.model import Phrase

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_POSSESSIVE = re.compile(r"['’]s?$")
_VOWELS = frozenset("aeiouy")
_DOUBLED = frozenset("bdfgklmnprtvz")
_SHORTEST = 3  # letters of a stem
_SHORTEST_PREFIX = 4  # letters: fewer begin too many other words

# Verbs and nouns of everyday talk whose forms follow no rule, the stem first.
_IRREGULAR_FORMS = """
be am is are was were been being|have has had having|do does did done doing|go goes went gone going
say says said saying|make makes made making|take takes took taken taking|come comes came coming
see sees saw seen seeing|get gets got gotten getting|give gives gave given giving
find finds found finding|think thinks thought thinking|tell tells told telling
become becomes became becoming|leave leaves left leaving|feel feels felt feeling
bring brings brought bringing|begin begins began begun beginning|keep keeps kept keeping
hold holds held holding|write writes wrote written writing|stand stands stood standing
hear hears heard hearing|mean means meant meaning|meet meets met meeting meetings
run runs ran running|pay pays paid paying|sit sits sat sitting|speak speaks spoke spoken speaking
lie lies lay lain lying|lead leads led leading|grow grows grew grown growing
lose loses lost losing|fall falls fell fallen falling|send sends sent sending
build builds built building buildings|understand understands understood understanding
draw draws drew drawn drawing|break breaks broke broken breaking|spend spends spent spending
cut cuts cutting|rise rises rose risen rising|drive drives drove driven driving
buy buys bought buying|wear wears wore worn wearing|choose chooses chose chosen choosing
eat eats ate eaten eating|sell sells sold selling|catch catches caught catching
teach teaches taught teaching|sing sings sang sung singing|sleep sleeps slept sleeping
fly flies flew flown flying flight flights|swim swims swam swum swimming
throw throws threw thrown throwing|win wins won winning|fight fights fought fighting
forget forgets forgot forgotten forgetting|feed feeds fed feeding|hide hides hid hidden hiding
steal steals stole stolen stealing|shut shuts shutting|shoot shoots shot shooting
drink drinks drank drunk drinking|ride rides rode ridden riding|bite bites bit bitten biting
hang hangs hung hanging|stick sticks stuck sticking|freeze freezes froze frozen freezing
wake wakes woke woken waking|lend lends lent lending|bend bends bent bending
light lights lit lighting|shake shakes shook shaken shaking|hit hits hitting|put puts putting
set sets setting|let lets letting|read reads reading|cost costs costing|grind grinds ground
man men|woman women|child children kid kids|person people persons|foot feet|tooth teeth
mouse mice|goose geese|knife knives|wife wives|life lives|leaf leaves|shelf shelves|wolf wolves
half halves|datum data|index indices indexes|bus buses|gas gases
die dies died dying|tie ties tied tying
"""
_STEMS = {
    form: forms.split()[0]
    for forms in _IRREGULAR_FORMS.replace("\n", "|").split("|")
    for form in forms.split()
}
_FORMS: dict[str, tuple[str, ...]] = {
    forms.split()[0]: tuple(forms.split())
    for forms in _IRREGULAR_FORMS.replace("\n", "|").split("|")
    if forms
}
_STEMS |= {"building": "building", "buildings": "building", "leaves": "leave", "found": "find"}
_FORMS["building"] = ("building", "buildings")
_FORMS["build"] = ("build", "builds", "built")
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


def plain(text: str) -> str:
    """Return a text in lower case and without accents, as the index reads it."""
    lower = text.lower().replace("’", "'")
    if lower.isascii():
        return lower
    decomposed = unicodedata.normalize("NFKD", lower)
    return "".join(char for char in decomposed if not unicodedata.combining(char))


def tokens(text: str) -> list[str]:
    """Return the words of a text in order, plain, contractions written out and without a possessive
    s."""
    found: list[str] = []
    for word in _WORD.findall(plain(text)):
        if "'" in word:
            found += _whole(word).split()
        else:
            found.append(word)
    return found


def _whole(word: str) -> str:
    if word in _EXPANDED:
        return _EXPANDED[word]
    if word.endswith("n't"):
        return f"{word[:-3]} not"
    for ending in ("'re", "'ve", "'ll", "'d", "'m"):
        word = word.removesuffix(ending)
    return _POSSESSIVE.sub("", word).replace("'", " ")


@lru_cache(50_000)
def stem(word: str) -> str:
    """Return the stem of a plain word: equal for its forms, and mostly a word itself."""
    if word in _STEMS:
        return _STEMS[word]
    if len(word) <= _SHORTEST or not word.isalpha():
        return word
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    if word.endswith("ied") and len(word) > 4:
        return f"{word[:-3]}y"
    for ending in ("ing", "ed"):
        root = word.removesuffix(ending)
        if root != word and len(root) >= _SHORTEST - 1 and _VOWELS & set(root):
            return _without_e(_undouble(root)) if len(root) >= _SHORTEST else word
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return _without_e(word[:-2])
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return _without_e(word[:-1])
    return _without_e(word)


def _undouble(root: str) -> str:
    return root[:-1] if root[-1] == root[-2] and root[-1] in _DOUBLED else root


def _without_e(root: str) -> str:
    """Without a final e, which "making" does not have: "mak"."""
    return root[:-1] if len(root) > _SHORTEST and root.endswith("e") and root[-2] != "e" else root


@lru_cache(4_096)
def forms(word: str) -> tuple[str, ...]:
    """Return every spelling of a plain word and its other forms, itself among them."""
    root = stem(word)
    if root in _FORMS:
        return tuple(dict.fromkeys([word, *_FORMS[root]]))
    if not root.isalpha() or len(root) < _SHORTEST:
        return tuple(dict.fromkeys([word, root]))
    last = root[-1]
    made = [word, root, f"{root}s", f"{root}ed", f"{root}ing", f"{root}e", f"{root}es"]
    if last == "y":
        made += [f"{root[:-1]}ies", f"{root[:-1]}ied"]
    if last in _DOUBLED and root[-2] in _VOWELS:
        made += [f"{root}{last}ed", f"{root}{last}ing", f"{root}{last}"]
    return tuple(dict.fromkeys(made))


@lru_cache(4_096)
def index_terms(word: str) -> tuple[Phrase, ...]:
    """Return the few terms of the index that find all forms of a plain word.

    A prefix finds a bit more, and costs less than many forms.
    """
    root = stem(word)
    if root in _FORMS or not root.isascii() or not root.isalpha() or len(root) < _SHORTEST_PREFIX:
        return tuple(map(Phrase, forms(word)))
    terms = [Phrase(root, prefix=True)]
    if root.endswith("y"):
        terms += [Phrase(f"{root[:-1]}ies"), Phrase(f"{root[:-1]}ied")]
    return tuple(terms)
