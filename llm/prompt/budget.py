"""The size of prompt that a model uses well, by its card: its size, its speed, its abilities."""

from __future__ import annotations

from dataclasses import dataclass

from llm.client.response import ModelCard
from llm.intents.question_text import asks_how, wants_long_answer
from llm.parsing.stream_parser import AnswerLimit

_FRESH_SECONDS = 1.5  # of reading that a person may have to wait for
_LEAST = 500  # tokens; a slow machine still has to see the talk that a question belongs to
_USED_WELL = (
    (300_000_000, 600),
    (1_000_000_000, 900),
    (3_000_000_000, 2_000),
    (9_000_000_000, 4_000),
)
"""Parameters of a model, up to which it makes good use of so many tokens of lines and turns."""

_SMALL = 1_000_000_000  # parameters, below which explanations and tags do more harm than good
_TINY_SENTENCES, _SMALL_SENTENCES, _LONG_ANSWER = 1, 2, 4
_STEPS = 2  # sentences; from the third on a small model invents the steps
_TINY = 300_000_000  # parameters, below which a model retells wrongly what it has just read


@dataclass(frozen=True, slots=True)
class PromptBudget:
    """The limits of a prompt for one model.

    `tokens` of lines and turns are worth their time; None: as many as the window holds. A model
    that `is_small` gets one plain sentence of persona, and only lines that belong to the question.
    One that `is_tiny` cannot retell even these, so that they are quoted instead. `may_call`: tools
    are offered; to a small model only those that the question calls for.
    """

    tokens: int | None = None
    is_small: bool = False
    is_tiny: bool = False
    may_call: bool = True

    def answer_limit(self, question: str) -> AnswerLimit | None:
        """Return how much of an answer is worth reading; None: all of it. What a tiny model adds
        to a right sentence ("Paris, which ...") is mostly wrong."""
        if not self.is_small:
            return None
        if asks_how(question):
            return AnswerLimit(_STEPS)
        if wants_long_answer(question):
            return AnswerLimit(_LONG_ANSWER)
        if self.is_tiny:
            return AnswerLimit(_TINY_SENTENCES, main_clause=True)
        return AnswerLimit(_SMALL_SENTENCES)

    @classmethod
    def from_card(cls, card: ModelCard | None) -> PromptBudget:
        """Derive the budget from what the agent server says of a model; without a card, or where
        it does not tell the size, the model is taken for a large one."""
        if card is None:
            return cls()
        can, size = card.capabilities, card.parameters
        forced = can.tools == "forced"
        is_small = forced or (size is not None and size < _SMALL)
        return cls(
            tokens=_tokens(size, card.prompt_tokens_per_second),
            is_small=is_small,
            is_tiny=is_small and (size is None or size < _TINY),
            may_call=can.chooses_tools is True if is_small else can.chooses_tools is not False,
        )


def _tokens(size: int | None, speed: float | None) -> int | None:
    """The tokens that a model of this size uses well and reads in the time a person waits."""
    most = next((tokens for limit, tokens in _USED_WELL if size and size < limit), None)
    fast_enough = max(_LEAST, round(_FRESH_SECONDS * speed)) if speed else None
    known = [tokens for tokens in (most, fast_enough) if tokens is not None]
    return min(known, default=None)
