"""The text of a question for skills, and whether it has room for another one."""

from __future__ import annotations

import re

MAX_QUESTION_LENGTH = 400
"""The length in characters up to which a question is matched by skills."""

_END = re.compile(r"(?:[\s?.,;]|(?<!\d)!)+$")  # "5!" is a sum
_QUOTES = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "„": '"', "−": "-", "–": "-"})


def plain(question: str) -> str:
    """Return a question with straight quotes and single spaces, without final punctuation; "" if it
    is too long."""
    text = " ".join(question.translate(_QUOTES).split())
    # The length bounds the backtracking of all patterns that the text is matched against.
    return _END.sub("", text) if len(text) <= MAX_QUESTION_LENGTH else ""


_MAX_PIECE = 6  # words; another request needs a verb and something to do it to
_ANOTHER_CLAUSE = re.compile(
    r"[,;:.?!](?:\s|$)|\b(?:and|or|but|then|because|if|whether|what|who|whose|where|why|how|which|when"
    r"|und|oder|aber|dann|weil|ob|was|wer|wo|warum|wie|welche[rns]?|wann|wenn)\b",
    re.IGNORECASE,
)


def is_one_piece(text: str) -> bool:
    """Return whether a text that a form has taken over as it stands is short and simple: it has no
    room for another request.

    A form cannot tell "check the oven" from "check the oven and tell me what bob said".
    """
    return len(text.split()) <= _MAX_PIECE and _ANOTHER_CLAUSE.search(text) is None
