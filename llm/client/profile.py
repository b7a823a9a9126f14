"""The profile of a model: all that is done differently for a tiny, a small and a capable one.

A model without a known number of parameters is capable, unless its tool calls have to be forced:
people point Terrarium at servers that say nothing about their models. `[model] profile` overrides
the choice. Nothing else in the tendrils asks for the size of a model.

- **tiny** (below 700 million parameters): it retells wrongly what it has just read and cannot judge
  anything. Lines of the log are quoted instead of shown to it, small talk is answered without it,
  and it is asked only for a few words that it is sure of.
- **small** (below 1,000 million): it retells one or two lines rightly, but recites explanations and
  tags and copies its own earlier answers. It gets one sentence of persona and only the lines that
  belong to the question, and answers in two sentences.
- **capable** (all others): it gets the channel as people see it, all tools, and the last word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import BaseModel, Field

from llm.messages.message import CHARACTERS_PER_TOKEN
from llm.reading.reading import Reading, refers_back

_MAX_PIECE = 6  # words of what a form took over; another request needs a verb and its object
_ANOTHER_CLAUSE = re.compile(
    r"[,;:.?!](?:\s|$)|\b(?:and|or|but|then|because|if|whether|what|who|whose|where|why|how|which|when"
    r"|und|oder|aber|dann|weil|ob|was|wer|wo|warum|wie|welche[rns]?|wann|wenn)\b",
    re.IGNORECASE,
)

ProfileName = Literal["tiny", "small", "capable"]

_TINY_BELOW, _SMALL_BELOW = 700_000_000, 1_000_000_000  # parameters
_TOKENS_PER_BILLION = 4_000
"""Tokens of lines and turns per thousand million parameters that a model below 10 of them still
uses well; a judgement from answers read, not a law."""
_LARGE_FROM = 10_000_000_000  # parameters; from here on the window is the only limit

_FRESH_SECONDS = 1.5
"""Seconds of reading uncached prompt that a person waits for. The speed is known only of the engine
on this machine's CPU, from its own timings: elsewhere latency says nothing about it."""
_MIN_TOKENS = 500  # even on a slow machine the conversation around a question must be seen

_LONG_RESULT, _SHORT_RESULT = 20_000, 2_500
"""Characters of a tool's result, for a large window and for the smallest."""
_RESULT_SHARE = 0.125  # of the window, which one result may take

_LONG_ANSWER_SENTENCES = 4
_STEP_SENTENCES = 2  # sentences of instructions; a small model invents the third and later steps


class CapabilitiesPart(BaseModel):
    """The abilities of a model. `tools` is "forced" if it is too small to choose a tool, `vision`
    is true if it accepts images. `chooses_tools` is null until the server has tested whether it
    chooses well when to use a tool."""

    tools: str | None = None
    vision: bool | None = None
    chooses_tools: bool | None = None
    embeddings: bool | None = None


class ModelCard(BaseModel):
    """The response of `/v1/models/NAME`; `root` is the model that an alias stands for.

    `max_model_len` is the window: the tokens of prompt and answer together in one request,
    `parameters` the number of the model's parameters, `prompt_tokens_per_second` the speed at which
    an engine on the server's own processor reads an uncached prompt, `profile` the profile that
    `[model] profile` sets, `weights` the model that is loaded, `gpus` the GPUs that it uses,
    `better` the model that `terrarium model pull` offers for the server's machine. None means
    unknown; servers other than ours may leave all of them out.
    """

    id: str
    root: str | None = None
    max_model_len: int | None = None
    parameters: int | None = None
    prompt_tokens_per_second: float | None = None
    profile: str | None = None
    weights: str | None = None
    gpus: list[str] | None = None
    better: str | None = None
    capabilities: CapabilitiesPart = Field(default_factory=CapabilitiesPart)

    @property
    def chooses_tools(self) -> bool | None:
        """True if the model chooses well when to use a tool; None while that is unknown.

        It is assumed of a model whose server does not report it.
        """
        able = self.capabilities
        if able.tools == "forced":
            return False
        # An explicit null means "not tested yet"; an absent field, that the server never tells.
        return able.chooses_tools if "chooses_tools" in able.model_fields_set else True


@dataclass(frozen=True, slots=True)
class Profile:
    """The material that a model is given, and what is done with its answers.

    - `context_tokens` bounds the lines and turns of a prompt; None: the share of the window that
      `[agent] context_share` allows.
    - `is_compact`: the prompt is one sentence of persona and the lines that belong to the question
      (`CompactPromptContext`), at temperature 0; the model is never asked to speak unasked.
    - `offers`: which tools; "fitting" are those that the question calls for.
    - `quotes`: which questions are answered with lines of the log in place of the model.
    - `answers_shortly`: the model is asked for a few words, twice (`llm/agent/short_answer.py`).
    - `makes_small_talk`: False if small talk, and questions in other languages than English, are
      answered without it.
    - `filters_output`: calls and parts of the prompt in its text are mistakes and are removed; a
      capable model with native tool calls means what it writes.
    - `sentences`: most sentences of an answer; None: all of it.
    - `result_length`: most characters of a tool's result.
    - `max_tokens`: most tokens of an answer unless `[agent] max_tokens` is set; None: no limit is
      sent, and a model may think as long as it likes.
    - `message_length`: most characters of a message that memory reads.
    - `shortcuts`: what a skill, or a command in plain words, may answer without the model: "all"
      that they recognise, or "whole sentences", in which nothing else can be asked.
    """

    name: ProfileName = "capable"
    context_tokens: int | None = None
    is_compact: bool = False
    offers: Literal["all", "fitting", "none"] = "all"
    quotes: Literal["none", "about log", "all"] = "none"
    answers_shortly: bool = False
    makes_small_talk: bool = True
    filters_output: bool = False
    sentences: int | None = None
    result_length: int = _LONG_RESULT
    max_tokens: int | None = None
    message_length: int = 2_000
    shortcuts: Literal["all", "whole sentences"] = "whole sentences"

    @classmethod
    def from_card(cls, card: ModelCard | None) -> Profile:
        """Return the profile of the model that a card describes; None: a server without cards."""
        if card is None:
            return CAPABLE
        size, able = card.parameters, card.capabilities
        forced = able.tools == "forced"  # it is too small to choose a tool
        if size is None:
            usual = TINY if forced else CAPABLE
        elif size < _TINY_BELOW:
            usual = TINY
        else:
            usual = SMALL if forced or size < _SMALL_BELOW else CAPABLE
        profile = _PROFILES.get(card.profile or "", usual)
        most = profile.context_tokens
        if not profile.is_compact:
            profile = replace(profile, filters_output=able.tools not in (None, "native"))
            if size and size < _LARGE_FROM:
                most = size * _TOKENS_PER_BILLION // 10**9
        # A tiny or small model is offered tools only once a test has shown that it can choose
        # them; a capable one is trusted until then (None).
        tested = able.chooses_tools is True
        may_call = tested if profile.is_compact else card.chooses_tools is not False
        if card.prompt_tokens_per_second is not None:
            soon = max(_MIN_TOKENS, round(_FRESH_SECONDS * card.prompt_tokens_per_second))
            most = soon if most is None else min(most, soon)
        bounds = [(card.max_model_len or 0) * _RESULT_SHARE, (most or 0) / 2]
        tokens = min(filter(None, bounds), default=_LONG_RESULT / CHARACTERS_PER_TOKEN)
        fitting = max(_SHORT_RESULT, round(tokens * CHARACTERS_PER_TOKEN))
        return replace(
            profile,
            context_tokens=most,
            offers=profile.offers if may_call else "none",
            result_length=min(profile.result_length, fitting),
        )

    def for_job(self) -> Profile:
        """Return the profile for a job nobody waits for, which needs all of its material."""
        return replace(
            CAPABLE,
            offers=self.offers,
            result_length=self.result_length,
            filters_output=self.filters_output,
            max_tokens=self.max_tokens,
        )

    def may_shortcut(self, free: Iterable[str]) -> bool:
        """Return whether a form that took the pieces `free` over may answer for the model.

        It cannot tell "check the oven" from "check the oven and tell me what bob said", so each
        piece must be so short and simple that it has no room for another request.
        """
        return self.shortcuts == "all" or not any(
            len(piece.split()) > _MAX_PIECE or _ANOTHER_CLAUSE.search(piece) or refers_back(piece)
            for piece in free
        )

    def answer_limit(self, reading: Reading) -> int | None:
        """Return how many sentences of the answer to a question are shown; None: all of them."""
        if self.sentences is None:
            return None
        if reading.kind == "howto":
            return _STEP_SENTENCES
        return _LONG_ANSWER_SENTENCES if reading.wants_long else self.sentences


SMALL = Profile(
    "small",
    context_tokens=900,
    is_compact=True,
    offers="fitting",
    quotes="about log",
    filters_output=True,
    sentences=2,
    result_length=_SHORT_RESULT,
    max_tokens=256,
    message_length=300,
    shortcuts="all",
)
TINY = replace(
    SMALL,
    name="tiny",
    context_tokens=600,
    quotes="all",
    answers_shortly=True,
    makes_small_talk=False,
)
CAPABLE = Profile()
_PROFILES: dict[str, Profile] = {"tiny": TINY, "small": SMALL, "capable": CAPABLE}
