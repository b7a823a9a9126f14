"""Answers that need no model: worked out by a skill, quoted from the log, or not to be had."""

from __future__ import annotations

import re
from collections.abc import Collection

import structlog

from llm.intents.question_text import is_about_talk
from llm.log_questions.answers import QuotedAnswer
from llm.prompt.budget import PromptBudget
from llm.prompt.log_window import LogWindow
from storage.db.errors import StorageError

NOT_SAID = "I find nothing about that in what was said here."

_WORLD = (
    "year|month|week|calendar|north|south|east|west|sun|moon|earth|world|sky|sea|ocean|equator"
    "|universe|solar system|milky way|planets?|weather|alphabet|bible|internet|web|telephone|phone"
    "|radio|television|light ?bulb|wheel|computer|printing press|steam engine|airplane|aeroplane"
    "|car|bicycle|olympics?|olympic games|world cup|human (?:body|heart|brain)|heart|brain|liver"
    "|skin|body|president|king|queen|pope|government|united (?:states|kingdom|nations)|us|usa|uk"
    "|eu|netherlands|[a-z]+ (?:war|ocean|sea|desert|river|tower|wall|revolution|empire|theorem"
    "|language|flag|anthem|currency)|dinosaurs?|opposite|capital|plural|past tense|meaning"
    "|definition|speed of|difference|square root|sum|name (?:of|for) (?:a|an|the largest)|process"
    "|formula|symbol|chemical|number of|colou?rs? of (?!our|my)|big rings|rainbow|theory|author"
    "|inventor|currency|population|language|(?:english|french|german|spanish|italian|dutch|russian"
    "|chinese|japanese|greek|latin|roman|american|british|european|african|asian)"
)
"""Definite things that the whole world knows."""

_LOCAL = re.compile(
    r"\b(?:our|ours|my|mine|(?:did|are|were|have|should|will|can) we)\b|\bin this channel\b"
    r"|\b(?:any|some)(?:one|body) (?!ever\b)(?:here|find|found|seen|got|lost"
    r"|borrow|borrowed|bring|brought|come|coming|going|bought|fixed|left|order|ordered)\b"
    rf"|\bthe (?!(?:{_WORLD})\b|most\b|least\b|first\b|last\b|next\b|only\b|\w+est\b)[a-z]",
    re.IGNORECASE,
)
_KNOWLEDGE = re.compile(
    r"\b(?:invent\w*|discover\w*|wrote|written|compos\w+|paint(?:s|ed)|sculpt(?:s|ed)|sang|sung"
    r"|direct(?:s|ed)|found(?:s|ed)|conquer(?:s|ed)|reign(?:s|ed)|star(?:s|red) in"
    r"|capital of|opposite of|stands? for|mean(?:s|ing)?|called"
    r"|largest|smallest|highest|biggest|\w+est)\b",
    re.IGNORECASE,
)
_ASKS = re.compile(
    r"\b(?:who|whom|whose|when|where|which|what(?:'?s)?|why|how (?:much|many|long|old|often|far"
    r"|heavy|late|big|tall|deep|high|wide)|is there|are there|did|does|do)\b",
    re.IGNORECASE,
)

_log = structlog.get_logger()


async def quoted_answer(log_window: LogWindow, question: str) -> QuotedAnswer | None:
    """Find the lines of the log that answer a question, or those that come nearest where only
    people here can know the answer. None: it is no question to the log, or that cannot be read."""
    try:
        if is_about_talk(question):
            return await log_window.lately()
        found = await log_window.answer(question)
        if found is None and is_local(question, log_window.people):
            return await log_window.nearest(question)
    except StorageError as error:  # then the model is asked without them
        _log.warning("turn.not_searched", error=str(error))
        return None
    return found


def direct_answer(worked_out: str, quoted: QuotedAnswer | None, budget: PromptBudget) -> str | None:
    """Return the answer to a question that needs no model of this size, or None.

    What a skill has worked out is the answer, whatever the model. A question about who said what is
    answered with the lines themselves where the model cannot search. A model that is too small to
    retell a line rightly is not asked to, nor to guess what only people here know.
    """
    if worked_out:
        return worked_out
    if not budget.is_small or quoted is None:
        return None
    return (quoted.text or NOT_SAID) if quoted.is_about_log or budget.is_tiny else None


def is_local(question: str, people: Collection[str] = ()) -> bool:
    """Return whether only people here can know the answer, judged by the words alone.

    It speaks of one of them, of "our" things, or of a definite thing ("the server room key") that
    is not one the whole world knows.
    """
    if not _ASKS.search(question):
        return False
    words = {word.removesuffix("'s").strip("'?.,!").lower() for word in question.split()}
    if words & {nick.lower() for nick in people}:
        return True
    return _LOCAL.search(question) is not None and not _KNOWLEDGE.search(question)
