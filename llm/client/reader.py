"""Reads questions: the agent server embeds them with its own small multilingual model."""

from __future__ import annotations

import asyncio

import structlog

from llm.client.client import AgentClient, RequestOptions
from llm.messages.errors import ModelError
from llm.reading.classifier import DIMENSIONS, classifier
from llm.reading.reading import MOST_TOKENS, Reading, shorten
from llm.reading.slots import Surroundings, read_slots

EMBEDDER = "multilingual-e5-small"
"""The agent server's own embedding model, on whose vectors the classifier was trained."""

_PATIENCE = 1.0  # seconds; on a busy machine reading takes longer, but an answer must not wait

_log = structlog.get_logger()


class Reader:
    """Reads questions with the embeddings of the agent server."""

    def __init__(self, client: AgentClient) -> None:
        self._client = client

    async def read(self, text: str, options: RequestOptions, around: Surroundings) -> Reading:
        """Return the reading of a question, without a kind if the embedding model is away."""
        if not text.strip():
            return Reading(text)
        said = shorten(text)
        try:
            async with asyncio.timeout(_PATIENCE):
                _, (vector,) = await self._client.embed(
                    [said], options, query=True, model=EMBEDDER, most_tokens=MOST_TOKENS
                )
        except (ModelError, TimeoutError) as error:
            _log.info("question.not_read", reason=type(error).__name__)
            return Reading(text)
        if len(vector) != DIMENSIONS:  # another model's, of a server that is not ours
            return Reading(text)
        head = classifier()
        features = head.features(said, vector)
        kinds = features.probabilities(head.kinds)
        kind = max(kinds, key=kinds.__getitem__)
        return Reading(
            text,
            kinds,
            features.probabilities(head.languages),
            features.probabilities(head.courtesies) if kind == "small_talk" else {},
            read_slots(kind, text, around),
            vector,
        )
