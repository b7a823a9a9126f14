"""The answer of a tiny model to a question of general knowledge: a few words, given only if sure.

What such a model writes in sentences is wrong every other time. It is asked twice for a few words,
once to continue a text of questions and answers and once in a chat. What both agree on, or what it
was very sure of, is right in four of five cases, and these are nearly all that it knows
(159 questions to SmolLM2 with 135 million parameters: 68 of 84 right; in sentences 75 of 144).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from llm.client.client import AgentClient, RequestOptions
from llm.messages.errors import RequestRejected, Unsure
from llm.messages.message import Message, ModelReply
from llm.prompt.compact_context import asked
from storage.passages.words import content_stems, tokens

_EXAMPLES: list[Message] = []
for _question, _answer in (
    ("What is the capital of France?", "Paris"),
    ("who wrote hamlet", "William Shakespeare"),
    ("how many hours are in a day?", "24"),
    ("What colour is the sky?", "Blue"),
    ("when did World War I begin", "1914"),
    ("whats the largest ocean", "The Pacific Ocean"),
):
    _EXAMPLES += [asked(_question), {"role": "assistant", "content": _answer}]
_PERSONA: Message = {"role": "system", "content": "You answer questions in a few words."}
_MAX_TOKENS = 16
_MIN_AGREED = 0.05  # least probability of the unlikeliest token of an answer given twice
_MIN_ALONE = 0.5  # and of one that was given once
_MARKS = frozenset("<>{}[]")  # of tool calls and prompts


async def ask_shortly(
    client: AgentClient, options: RequestOptions, question: str, before: Sequence[Message] = ()
) -> ModelReply:
    """Return the answer of the model in a few words. `before` are the question that this one
    follows up, and its answer. Raises ModelError, Unsure if the model is not sure of its answer or
    only repeats the question."""
    turns = [*_EXAMPLES, *before, asked(" ".join(question.split()))]
    options = replace(options, limit=None, temperature=0.0, max_tokens=_MAX_TOKENS)
    try:
        first = await client.complete(_as_text(turns), options)
    except RequestRejected as error:  # a server without that API
        raise Unsure(str(error)) from error
    told = _words(first.text) - _words(question)
    is_prose = _MARKS.isdisjoint(first.text)
    if not told or not is_prose or first.certainty < _MIN_AGREED:
        raise Unsure(f'"{first.text}", least probability {first.certainty:.2f}')
    usage = first.usage
    if first.certainty < _MIN_ALONE:
        second = await client.chat([_PERSONA, *turns], options)
        usage += second.usage
        if not told & _words(second.text):
            raise Unsure(f'"{first.text}", but also "{second.text}"')
    answer = first.text[:1].upper() + first.text[1:]
    return replace(first, text=answer if answer[-1] in ".!?" else f"{answer}.", usage=usage)


def _words(text: str) -> frozenset[str]:
    """Return the stems of the words that tell something, among them all numbers."""
    return content_stems(text) | {word for word in tokens(text) if word.isdigit()}


def _as_text(turns: Sequence[Message]) -> str:
    """Return turns as a text that the next answer continues."""
    lines = (turn["content"] + ("\n\n" if turn["role"] == "assistant" else " ") for turn in turns)
    return "".join(lines).rstrip(" ")
