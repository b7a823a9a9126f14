"""The text of a question, stripped of courtesies, and whether there is room for another one."""

from __future__ import annotations

import re

MAX_QUESTION_LENGTH = 400
"""The length in characters up to which a question is matched by skills."""

_BEFORE = re.compile(
    r"(?:(?:hey|hi|hello|ok|okay|so|well|um+|please|pls|bitte|and|quick question|question|sag mal)"
    r"(?:\s*[,:!.]+\s*|\s+)"
    r"|(?:can|could|would|will) you (?:please |kindly )?(?=\w)"
    r"|(?:kannst|könntest) du (?:mir )?(?:bitte )?(?=\w)"
    r"|do you (?:happen to )?know (?=what|how|when|which|the|if)"
    r"|(?:please )?(?:tell|show|give) me (?=what|how|when|which|the|a\b|today|if)"
    r"|sag(?:e)? mir (?:bitte )?(?=was|wie|wann)"
    r"|(?:i want to know|i'd like to know|i wonder|let me know) (?=what|how|when|which|if))",
    re.IGNORECASE,
)
_AFTER = re.compile(
    r"(?:[\s,]+(?:please|pls|bitte|thanks|thank you|thx|danke|for me|exactly|genau))+[\s.!?]*$",
    re.IGNORECASE,
)
_END = re.compile(r"(?:[\s?.,;]|(?<!\d)!)+$")  # "5!" is a sum
_QUOTES = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "„": '"', "−": "-", "–": "-"})


def plain(question: str) -> str:
    """Return a question with straight quotes and single spaces; "" if it is too long."""
    text = " ".join(question.translate(_QUOTES).split())
    # The length bounds the backtracking of all patterns that the text is matched against.
    return text if len(text) <= MAX_QUESTION_LENGTH else ""


def strip_courtesies(question: str) -> str:
    """Return `plain(question)` without "hey", "can you", "please" and final punctuation."""
    text = plain(question)
    for _ in range(4):  # "hey, can you please tell me what ..."
        if not (match := _BEFORE.match(text)):
            break
        text = text[match.end() :]
    return _END.sub("", _AFTER.sub("", _END.sub("", text)))


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
