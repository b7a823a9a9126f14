"""The answer of a tiny model to a question of general knowledge, given only if it is sure.

What such a model writes is often wrong. It is asked to continue a text of questions and short
answers, and for a sentence. What it was very sure of, or said in both, is right in nine of
ten cases (`make bench-quiz`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from llm.client.client import AgentClient, RequestOptions
from llm.messages.errors import RequestRejected, Unsure
from llm.messages.message import Message, ModelReply
from llm.prompt.context_manager import asked
from storage.passages.words import content_stems, tokens
from storage.usage.usage import TokenUsage

_EXAMPLES: list[Message] = []
for _asked, _replied in (
    ("What is the capital of France?", "Paris"),
    ("who wrote hamlet", "William Shakespeare"),
    ("how many hours are in a day?", "24"),
    ("What colour is the sky?", "Blue"),
    ("when did World War I begin", "1914"),
    ("whats the largest ocean", "The Pacific Ocean"),
):
    _EXAMPLES += [asked(_asked), {"role": "assistant", "content": _replied}]
_MAX_TOKENS = 24
# Least probabilities of the unlikeliest token that tells something:
_SURE = 0.8  # of a few words
_SURE_SENTENCE = 0.3
_SAID_TWICE = 0.08  # of a few words that the sentence has, too
_MARKS = frozenset("<>{}[]")  # of tool calls and prompts


async def ask_shortly(
    client: AgentClient, options: RequestOptions, question: str, before: Sequence[Message] = ()
) -> ModelReply:
    """Return the answer of the model in a few words or a sentence. `before` are the question that
    this one follows up, and its answer. Raises ModelError, Unsure if the model is not sure of its
    answer or only repeats the question."""
    question = " ".join(question.split())
    turns = [*_EXAMPLES, *before, asked(question)]
    ends = {"user": " ", "assistant": "\n\n"}
    lines = (turn["content"] + ends[turn["role"]] for turn in turns)
    options = replace(options, limit=None, temperature=0.0, max_tokens=_MAX_TOKENS)
    try:
        short = _first_sentence(await client.complete("".join(lines).rstrip(" "), options))
        certainty = _certainty(short, question)
        if certainty >= _SURE:
            return _answer(short, short.usage)
        prompt: list[Message] = [*before, {"role": "user", "content": question}]
        told = await client.complete(prompt, options)
    except RequestRejected as error:  # a server without that API
        raise Unsure(str(error)) from error
    usage, sentence = short.usage + told.usage, _first_sentence(told)
    if _certainty(sentence, question) >= _SURE_SENTENCE:
        return _answer(sentence, usage)
    is_said_twice = _new_words(short.text, question) <= _words(told.text)
    if certainty >= _SAID_TWICE and is_said_twice:
        return _answer(short, usage)
    raise Unsure(f'"{short.text}" / "{told.text}"')


def _first_sentence(reply: ModelReply) -> ModelReply:
    words = reply.text.split()
    for number, word in enumerate(words, 1):
        # It does not end after initials: "F.", "J.K."
        is_end = word.endswith((".", "!", "?", '."', '!"', '?"'))
        if is_end and word.count(".") < 2 < len(word):
            return replace(reply, text=" ".join(words[:number]), finish_reason="stop")
    return reply


def _answer(reply: ModelReply, usage: TokenUsage) -> ModelReply:
    text = reply.text[:1].upper() + reply.text[1:]
    return replace(reply, text=text if text[-1] in ".!?" else f"{text}.", usage=usage)


def _certainty(reply: ModelReply, question: str) -> float:
    """Return the probability of the unlikeliest token of the words that the question does not
    have, 0 if there is none, or the reply is cut or no prose."""
    told = _new_words(reply.text, question)
    if not told or reply.is_cut or not _MARKS.isdisjoint(reply.text):
        return 0.0
    text = "".join(token for token, _ in reply.tokens)
    ends = [*accumulate(len(token) for token, _ in reply.tokens)]
    found = [
        chance
        for word in re.finditer(r"\S+", text)
        if _words(word.group()) & told
        for end, (_, chance) in zip(ends, reply.tokens, strict=True)
        if word.start() < end <= word.end()
    ]
    return min(found, default=0.0)


def _new_words(text: str, question: str) -> frozenset[str]:
    return _words(text) - _words(question)


def _words(text: str) -> frozenset[str]:
    """Return the stems of the words that tell something, among them all numbers."""
    return content_stems(text) | {word for word in tokens(text) if word.isdigit()}
