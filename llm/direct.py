"""Answers that need no model: worked out by a skill, or quoted from the log."""

from __future__ import annotations

import re

import structlog

from llm.budget import PromptBudget
from llm.log_questions import QuotedAnswer
from llm.log_view import LogView
from storage.errors import StorageError

NOT_SAID = "I find nothing about that in what was said here."

_LOCAL = re.compile(
    r"\b(?:our|ours|we|us|my|mine|here|in this channel|on this channel)\b"
    r"|\b(?:where|when|who|which|what(?:'s| is| was| time| day| room| number| port| address)?"
    r"|how (?:much|many|long|often)).*\bthe (?!\w+ of\b|most\b|least\b|best\b|first\b|last\b|\w+est\b)",
    re.IGNORECASE,
)
_GENERAL = re.compile(r"\b(?:of|in|on|called|named)\b|\b[A-Z][a-z]+\b.*\b[A-Z]", re.DOTALL)

_log = structlog.get_logger()


async def quoted_answer(view: LogView, question: str) -> QuotedAnswer | None:
    """Find the lines of the log that answer a question; None when there are none, or the log
    cannot be read."""
    try:
        return await view.answer(question)
    except StorageError as error:  # then the model is asked without them
        _log.warning("turn.not_searched", error=str(error))
        return None


def direct_answer(
    question: str, worked_out: str, quoted: QuotedAnswer | None, budget: PromptBudget
) -> str | None:
    """Return the answer to a question that needs no model of this size, or None.

    What a skill has worked out is the answer, whatever the model. A question about who said what is
    answered with the lines themselves where the model cannot search. A model that is too small to
    retell a line rightly is not asked to.
    """
    if worked_out:
        return worked_out
    if not budget.is_small or quoted is None:
        return None
    if quoted.is_about_log or (budget.is_tiny and quoted.events):
        return quoted.text
    return None
