"""The ordered list of those who answer a question in place of the model; the order is the policy.

A package adds one by an entry point of the group `terrarium.answerers`, whose object is created
without arguments; it comes after the skills.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.metadata import entry_points

from llm.answerers.answer import Answerer, AskedQuestion, DirectAnswer
from llm.answerers.facts import FactAnswerer
from llm.messages.errors import Unsure
from llm.reading.reading import FROM_HERE, OF_PLACE, Reading

ENTRY_POINT_GROUP = "terrarium.answerers"

TOO_SMALL = Unsure.sentence
CANNOT = "I cannot do that; I can only answer questions and find what was said."
ONLY_ENGLISH = "My model is too small for other languages than English; please ask in English."
NO_TIME = 'When? Say it like "remind me in 20 minutes to ..." or "remind me tomorrow at 9 to ...".'
TAKEN_NOTE = "I see."
SELF = (
    "I am a bot: a program with a small language model. I work out sums, units, dates and times,"
    " and answer simple questions."
)
NOT_SAID = "I find nothing about that in what was said here."

_CLAIMED = 0.9  # certainty that a question is about the log, from which "nobody said" is said
_LIKELY = 0.35  # probability from which only people here may know, so that a model would invent it

_ASKED = frozenset({"follow_up", "general"})
"""The kinds of questions that a tiny model is asked: what follows up may be general, too."""
_ABOUT = frozenset({"about_bot", "help"})
_ACTS = frozenset({"order", "tell", "schedule"})
_REMINDERS = frozenset({"remind"})
_STATEMENTS = frozenset({"statement"})
_SMALL_TALK = frozenset({"small_talk"})

COURTESIES = {
    "hello": "Hello! Ask me something.",
    "thanks": "You are welcome.",
    "bye": "Bye.",
    "how_are_you": "I am fine, thank you.",
    "praise": "Thank you.",
    "sorry": "No problem.",
    "insult": "Sorry; my model is small. I am better at finding what was said here.",
    "laugh": ":)",
    "test": "Yes, I am here.",
    "other": "I see.",
}
"""Answers to small talk by its kind, for a tiny model."""


class SkillAnswerer:
    """Gives what a skill has worked out, whatever the model."""

    async def answer(self, reading: Reading, asked: AskedQuestion) -> DirectAnswer | None:
        """Return the result of the skill."""
        return DirectAnswer(asked.worked_out, "skill") if asked.worked_out else None


class LogAnswerer:
    """Quotes the lines of the log that answer the question, for models that retell them wrongly."""

    async def answer(self, reading: Reading, asked: AskedQuestion) -> DirectAnswer | None:
        """Return the lines, or that nothing was found where only people here can know."""
        quoted, quotes = asked.quoted, asked.profile.quotes
        if quoted is None:
            # A model that is shown nothing would only invent it.
            is_lost = quotes != "none" and asked.log_window and reading.is_one_of(OF_PLACE, _LIKELY)
            return DirectAnswer(NOT_SAID, "log") if is_lost else None
        if quotes == "none" or not (quoted.is_about_log or quotes == "all"):
            return None
        score = quoted.score if quoted.shown else reading.certainty
        # That somebody did not say something is claimed only if that surely was the question.
        text = quoted.text if quoted.shown or score >= _CLAIMED else NOT_SAID
        return DirectAnswer(text or NOT_SAID, "log", score, quoted)


class HonestAnswerer:
    """Says for a tiny model what it cannot do, and is polite in its place."""

    async def answer(self, reading: Reading, asked: AskedQuestion) -> DirectAnswer | None:
        """Return the sentence for a kind that the model only pretends to fulfil."""
        if asked.profile.makes_small_talk:
            return None
        if not reading.kind or reading.is_one_of(_ASKED):
            return DirectAnswer(ONLY_ENGLISH, "honest") if reading.is_foreign else None
        if reading.is_one_of(_SMALL_TALK):
            text = COURTESIES.get(reading.courtesy, TAKEN_NOTE)
        elif reading.is_one_of(_ABOUT):
            text = SELF
        elif reading.is_one_of(_STATEMENTS):
            text = TAKEN_NOTE
        elif reading.is_one_of(_REMINDERS):  # those that are understood are set before
            text = NO_TIME
        elif reading.is_one_of(_ACTS):
            text = CANNOT
        elif reading.is_foreign:
            text = ONLY_ENGLISH
        else:
            searched = asked.log_window is not None and reading.is_one_of(FROM_HERE)
            text = NOT_SAID if searched else TOO_SMALL
        return DirectAnswer(text, "honest", reading.certainty)


@cache
def answerers() -> Sequence[Answerer]:
    """Return the answerers in order: facts, skills, those of packages, the log, honest refusals."""
    added = [entry.load()() for entry in entry_points(group=ENTRY_POINT_GROUP)]
    return [FactAnswerer(), SkillAnswerer(), *added, LogAnswerer(), HonestAnswerer()]


async def first_answer(reading: Reading, asked: AskedQuestion) -> DirectAnswer | None:
    """Return the first answer without the model; None if the model is to be asked."""
    for answerer in answerers():
        if answer := await answerer.answer(reading, asked):
            return answer
    return None
