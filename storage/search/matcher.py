"""Matching of search terms against the text of a line: for verification, ranking and highlighting.

Text is tokenized as in the index: words are letters and digits, case and accents are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import log1p

from storage.search.models import MatchSnippet
from storage.search.query_parser import Term, TermKind
from storage.text_index.words import fold, fold_with_offsets, words

_SNIPPET_WIDTH = 300  # characters of a snippet
_SNIPPET_LEAD = 80  # characters that a snippet of a long line shows before the first mark
_HALF_SCORE_LENGTH = 160  # characters of a line in which a term counts half
_ADJACENT_SCORE = 1.0  # score for all terms side by side, in the order of the search
_RECENT_SCORE = 0.5  # score for the newest of the ranked lines


class Matcher:
    """The compiled patterns of the terms of a search."""

    def __init__(self, terms: Sequence[Term]) -> None:
        sources = [_pattern(term) for term in terms]
        self._each = [re.compile(source) for source in sources]
        self._any = re.compile("|".join(sources)) if sources else None
        together = r"[\W_]+".join(sources)
        self._together = re.compile(together) if len(sources) > 1 else None

    def matches(self, text: str) -> bool:
        """Return True if any of the terms occurs."""
        return self._any is not None and self._any.search(fold(text)) is not None

    def score(self, text: str, age: float) -> float:
        """Return the score of a line, the higher the better.

        It grows with the number of occurrences, with the terms standing together, with brevity and
        with recency: `age` is from 0, for the newest of the ranked lines, to 1, for the oldest.
        """
        plain = fold(text)
        often = sum(log1p(len(each.findall(plain))) for each in self._each)
        close = self._together is not None and self._together.search(plain) is not None
        return (
            often / (1 + len(plain) / _HALF_SCORE_LENGTH)
            + _ADJACENT_SCORE * close
            + _RECENT_SCORE * (1 - age)
        )

    def snippet(self, text: str) -> MatchSnippet:
        """Return the part of a text with the first matches, and their positions in it."""
        marks: list[tuple[int, int]] = []
        if self._any is not None:
            plain, places = fold_with_offsets(text)
            found = (match.span() for match in self._any.finditer(plain))
            marks = [(places[begin], places[end - 1] + 1) for begin, end in found if end > begin]
        if len(text) <= _SNIPPET_WIDTH:
            return MatchSnippet(text, tuple(marks))
        start = max(0, marks[0][0] - _SNIPPET_LEAD) if marks else 0
        start = min(start, len(text) - _SNIPPET_WIDTH)
        end = start + _SNIPPET_WIDTH
        head, tail = "…" if start else "", "…" if end < len(text) else ""
        shift = len(head) - start
        inside = [(max(a, start) + shift, min(b, end) + shift) for a, b in marks if a < end]
        return MatchSnippet(f"{head}{text[start:end]}{tail}", tuple(inside))


def _pattern(term: Term) -> str:
    plain = fold(term.text)
    if term.kind is TermKind.PART:
        return re.escape(plain)
    # Not \b: in a pattern "_" belongs to a word, in the index it separates words.
    end = r"\w*" if term.kind is TermKind.PREFIX else r"(?![^\W_])"
    return r"(?<![^\W_])" + r"[\W_]+".join(map(re.escape, words(plain))) + end
