"""Search queries of fourteen kinds, drawn from the real lines with a fixed random seed."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from itertools import pairwise

from benchmarks.ubuntu import BEGIN, lines

EACH = 30  # queries of each kind
_WORD = re.compile(r"[a-z]{2,}")


def questions(span: timedelta) -> Mapping[str, Sequence[str]]:
    """Return query texts by kind, for a log that covers `span`. Raises NoCorpus."""
    chance = random.Random(5)
    said = [_WORD.findall(text.lower()) for _, _, text in lines()]
    frequency = Counter(word for words in said for word in words)
    by_frequency = [word for word, _ in frequency.most_common()]
    common, middle = by_frequency[20:150], by_frequency[300:3_000]
    rare = [word for word in by_frequency if frequency[word] <= 3 and len(word) > 4]
    nicks = [nick for nick, count in Counter(n for _, n, _ in lines()).items() if count < 20]

    def some(words: Sequence[str]) -> list[str]:
        return chance.sample(words, EACH)

    def days(count: int) -> str:
        begin = BEGIN + span * chance.uniform(0, 0.95)
        return f"since:{begin:%Y-%m-%d} until:{begin + timedelta(days=count):%Y-%m-%d}"

    return {
        "a rare word": some(rare),
        "a common word": some(common),
        "two common words": [f"{a} {b}" for a, b in pairwise([*some(common), common[0]])],
        "a phrase of three": some(_phrases(said, frequency, most=10**9)),
        "a rare phrase of common words": some(_phrases(said, frequency, most=3, among=80)),
        "a prefix of two": [f"{word[:2]}*" for word in some(middle)],
        "a prefix of three": [f"{word[:3]}*" for word in some(middle)],
        "a prefix of five": [f"{word[:5]}*" for word in some([w for w in middle if len(w) > 5])],
        "a part of a word": [f"*{word[1:]}*" for word in some([w for w in middle if len(w) > 5])],
        "a word that is not there": ["".join(chance.sample("bcdfghjkqxz", 9)) for _ in range(EACH)],
        "a common word on a channel": [f"{word} in:#bash" for word in some(common)],
        "a common word by a rare nick": [
            f"{word} from:{nick}" for word, nick in zip(some(common), some(nicks), strict=True)
        ],
        "a common word on one day": [f"{word} {days(0)}" for word in some(common)],
        "a rare word in a month": [f"{word} {days(30)}" for word in some(rare)],
    }


def _phrases(
    said: Sequence[Sequence[str]], frequency: Counter[str], most: int, among: int | None = None
) -> list[str]:
    """Return the quoted phrases of three words that occur at most `most` times, sorted.

    Their words are among the `among` commonest; None: any.
    """
    known = {word for word, _ in frequency.most_common(among)}
    found = Counter(
        f'"{a} {b} {c}"'
        for words in said
        for a, b, c in zip(words, words[1:], words[2:], strict=False)
        if a in known and b in known and c in known
    )
    return sorted(phrase for phrase, count in found.items() if count <= most)
